"""Going on with other workers than before: from the last step at which those that stay had met."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from trainwright.algorithm.local import Local
from trainwright.algorithm.partition import home_range
from trainwright.algorithm.protocol import Member, Seat
from trainwright.algorithm.subnetwork import IstMember
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.keep import Keep
from trainwright.runtime.apart.merged import fitted


@dataclass(slots=True)
class Memory:
    """What a worker had at its last two meetings, and its seat then: one that dies may leave the others a
    meeting apart."""

    kept: dict[int, tuple[Seat, dict[str, Any]]] = field(default_factory=dict)

    def push(self, step: int, seat: Seat, kept: dict[str, Any]) -> None:
        """Remember a meeting, and a copy of what a worker needs to go on from it."""
        self.kept[step] = seat, deepcopy(kept)
        for old in sorted(self.kept)[:-2]:
            del self.kept[old]

    @property
    def last(self) -> int:
        """The step of the last meeting; -1 if there was none."""
        return max(self.kept, default=-1)


def recall(memory: Memory) -> int:
    """The last step at which all that were at any meeting had met, and that all remember from now on.

    Those that were not there are given a copy of another's memory. -1 if no one has one.
    """
    rank, known = dist.get_rank(), [[0]] * dist.get_world_size()
    dist.all_gather_object(known, list(memory.kept))
    if not any(known):
        return -1
    step = min(max(each) for each in known if each)
    giver = next(place for place, each in enumerate(known) if step in each)
    for taker in (place for place, each in enumerate(known) if step not in each):
        copied = [memory.kept.get(step)]
        if rank == giver:
            dist.send_object_list(copied, dst=taker)
        elif rank == taker:
            dist.recv_object_list(copied, src=giver)
            assert copied[0] is not None
            memory.kept[step] = copied[0]
    for later in [each for each in memory.kept if each > step]:
        del memory.kept[later]  # others take these steps again, and may get less far
    return step


def regroup(job: Job, memory: Memory, seat: Seat) -> Member:
    """This worker's member among those that go on, as of the step that they begin with."""
    before, kept = memory.kept[seat.first]
    if "home" not in kept or kept["whole"] is not None:
        return _same(job, kept, seat)
    start = fitted(job, seat, _whole(job, before, kept), job.algorithm, before.workers)
    return job.algorithm.begin(job.network, job.learning, seat, start)


def _same(job: Job, kept: Mapping[str, Any], seat: Seat) -> Member:
    """A worker that holds all weights goes on with what it has, whoever else is there."""
    kept = kept["whole"] if "home" in kept else kept
    local = Local(job.network, job.learning, job.network.initial(job.seed))
    local.take_over(kept["local"])
    member: Any = job.algorithm.begin(job.network, job.learning, seat, local.values())
    if isinstance(member, IstMember):
        if member.whole_model is not None:
            member.whole_model.take_over(kept)
    elif kept.keys() >= member.kept().keys():
        member.take_over(kept)
    else:  # it was alone, and its weights are the first outer model
        member.local.take_over(kept["local"])
    return member  # type: ignore[no-any-return]


def _whole(job: Job, before: Seat, kept: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All weights: homes of those that are left, and of the last checkpoint what others had at home."""
    anatomy = job.network.anatomy
    elements = sum(each.elements for each in anatomy.partitioned)
    low, high = home_range(elements, before.rank, before.workers)
    flat = torch.full((elements,), -torch.inf)
    flat[low:high] = kept["home"]
    dist.all_reduce(flat, op=dist.ReduceOp.MAX)  # a home may be here twice, where its memory was copied
    known = flat > -torch.inf
    lost = {} if bool(known.all()) else _kept_weights(job)
    values, at = dict(kept["shared"]), 0
    for each in anatomy.partitioned:
        piece, there = flat[at : at + each.elements], known[at : at + each.elements]
        if lost:
            piece = torch.where(there, piece, lost[each.name].reshape(-1))
        values[each.name] = piece.view(each.sizes)
        at += each.elements
    return {each.name: values[each.name] for each in anatomy.weights}


def _kept_weights(job: Job) -> Mapping[str, torch.Tensor]:
    """What the weights that are lost go back to: the newest intact checkpoint, or the first weights."""
    shelf = job.keeping.checkpoints
    kept = Keep(shelf=shelf, job=job).weights() if shelf else None
    return job.network.initial(job.seed) if kept is None else kept
