"""Going on with the workers that are left: from the last step at which all had met."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from trainwright.algorithm.partition import home_range
from trainwright.algorithm.protocol import Member, Seat
from trainwright.algorithm.subnetwork import IstMember
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.keep import load_weights
from trainwright.runtime.apart.merged import fitted
from trainwright.runtime.shelf import kept_checkpoints


@dataclass(slots=True)
class Memory:
    """What a worker had at its last two meetings: one that dies may leave the others a meeting apart."""

    start: int = -1
    seat: Seat | None = None
    kept: dict[int, dict[str, Any]] = field(default_factory=dict)

    def push(self, step: int, seat: Seat, kept: dict[str, Any]) -> None:
        """Remember a meeting, and a copy of what a worker needs to go on from it."""
        self.seat = seat
        self.kept[step] = deepcopy(kept)
        for old in sorted(self.kept)[:-2]:
            del self.kept[old]

    @property
    def last(self) -> int:
        """The step of the last meeting; -1 if there was none."""
        return max(self.kept, default=-1)


def common_step(memory: Memory) -> int:
    """The last step at which all that are left had met; -1 if not all had."""
    steps: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(steps, memory.last)
    return min(steps) if min(steps) in memory.kept else -1


def regroup(job: Job, memory: Memory, seat: Seat) -> Member:
    """This worker's member among those that are left, as of the step that they begin with."""
    kept = memory.kept[seat.first]
    if "home" not in kept or kept["whole"] is not None:
        return _same(job, kept, seat)
    assert memory.seat is not None
    start = fitted(job, seat, _whole(job, memory, kept), job.algorithm, memory.seat.workers)
    return job.algorithm.begin(job.network, job.learning, seat, start)


def _same(job: Job, kept: Mapping[str, Any], seat: Seat) -> Member:
    """A worker that holds all weights goes on with what it has, whoever else is there."""
    member = job.algorithm.begin(job.network, job.learning, seat, job.network.initial(job.seed))
    alone = "home" in kept and not isinstance(member, IstMember)  # the last of subnetworks trains it all
    member.take_over(kept["whole"] if alone else kept)
    return member


def _whole(job: Job, memory: Memory, kept: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """All weights: homes of those that are left, and of the last checkpoint what others had at home."""
    assert memory.seat is not None
    anatomy, old = job.network.anatomy, memory.seat
    elements = sum(each.elements for each in anatomy.partitioned)
    low, high = home_range(elements, old.rank, old.workers)
    flat, known = torch.zeros(elements), torch.zeros(elements)
    flat[low:high], known[low:high] = kept["home"], 1.0
    dist.all_reduce(flat)
    dist.all_reduce(known)
    values = dict(kept["shared"])
    before = _kept_weights(job) if bool((known == 0).any()) else {}
    at = 0
    for each in anatomy.partitioned:
        piece, there = flat[at : at + each.elements], known[at : at + each.elements] > 0
        if before:
            piece = torch.where(there, piece, before[each.name].reshape(-1))
        values[each.name] = piece.view(each.sizes)
        at += each.elements
    return {each.name: values[each.name] for each in anatomy.weights}


def _kept_weights(job: Job) -> Mapping[str, torch.Tensor]:
    """What the weights that are lost go back to: the last checkpoint, or the first weights."""
    shelf = job.keeping.checkpoints
    kept = kept_checkpoints(shelf)[-1:] if shelf else ()
    return load_weights(kept[0]) if kept else job.network.initial(job.seed)
