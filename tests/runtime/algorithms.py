"""What processes of a pool do to try training algorithms."""

import ctypes
import gc
import os
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tests.commands import parse_command
from trainwright.algorithm.exact import Exact
from trainwright.algorithm.learning import Learning
from trainwright.algorithm.network import Batch, Mlp, Network, ResidualMlp
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import parse_algorithm
from trainwright.algorithm.subnetwork import IstMember
from trainwright.algorithm.talk import converse, converse_together
from trainwright.algorithm.teacher import build_task, teach
from trainwright.algorithm.train import Order, Task, train_here
from trainwright.algorithm.transformer import Transformer
from trainwright.cli.run_algorithm import parse_job
from trainwright.runtime.apart.job import Job
from trainwright.runtime.apart.regroup import Memory, recall, regroup

NETWORKS: dict[str, Network] = {
    "mlp": Mlp(inputs=6, hidden=(13, 10), classes=3),  # no layer divides by 4
    "residual": ResidualMlp(inputs=6, width=8, inner=12, blocks=6, classes=3),
    "transformer": Transformer(vocab=11, seq=8, layers=2, hidden=12, heads=6, ffn=10),
}
STEPS, BATCH, EVERY = 11, 16, 4


def task_of(name: str) -> Task:
    """A small task for a network of that name."""
    if name == "transformer":
        tokens = torch.randint(11, (64, 9), generator=torch.Generator().manual_seed(1))
        batch = Batch(tokens[:, :-1], tokens[:, 1:])
        return build_task(NETWORKS[name], batch, batch, BATCH)
    data = teach(6, 3, 200, width=8)
    return build_task(NETWORKS[name], data.train, data.test, BATCH)


def order_of(text: str, workers: int, optimizer: str = "sgd") -> Order:
    """A short run of an algorithm."""
    learning = (
        Learning(rate=0.05, momentum=0.9) if optimizer == "sgd" else Learning(optimizer="adamw", rate=0.01)
    )
    return Order(algorithm=parse_algorithm(text), learning=learning, workers=workers, steps=STEPS, seed=3)


def run(rank: int, text: str, network: str, optimizer: str) -> dict[str, Any]:
    """A run among the processes of the pool: its losses, last weights, and what was passed to collectives."""
    course, tally = train_here(task_of(network), order_of(text, 4, optimizer))
    return {
        "losses": course.losses, "values": {name: each.numpy() for name, each in course.values.items()},
        "bytes": tally.bytes, "calls": tally.calls, "remote": tally.remote_bytes,
    }  # fmt: skip


def resident(rank: int, text: str) -> int:
    """Bytes of all tensors that live in this process, two steps into a round; nothing else holds any."""
    network, learning = Mlp(inputs=16, hidden=(512, 512, 512), classes=10), Learning(rate=0.1)
    seat = Seat(rank=rank, workers=4, steps=100)
    gc.collect()
    before = _living()
    member = parse_algorithm(text).begin(network, learning, seat, network.initial(0))
    data = teach(16, 10, 100)
    for number in range(6):  # with every=4, into the second round
        converse(member.step(number, data.train.part(rank, 4)))
    del data
    if hasattr(member, "last"):
        member.last = None
    gc.collect()
    assert not isinstance(parse_algorithm(text), Exact) or member is not None
    return _living() - before


def resident_set(rank: int, text: str) -> int:
    """By how many bytes the memory that the system has given this process grew, two steps into a round."""
    network, learning = Mlp(inputs=16, hidden=(2048, 2048, 2048), classes=10), Learning(rate=0.1)
    seat, data = Seat(rank=rank, workers=4, steps=100), teach(16, 10, 100)
    before = _given()
    member = parse_algorithm(text).begin(network, learning, seat, network.initial(0))
    for number in range(6):  # with every=4, into the second round
        converse(member.step(number, data.train.part(rank, 4)))
    grown = _given() - before
    assert member.kept()  # it lives until here
    return grown


def _given() -> int:
    """Resident bytes of this process, after what was freed is given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _living() -> int:
    """Bytes of all tensors; those of an earlier trace have none."""
    storages = {
        each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
        for each in gc.get_objects()
        if isinstance(each, torch.Tensor) and not isinstance(each, FakeTensor)
    }
    return sum(storages.values())


def regroup_four_of_five(rank: int, text: str, first: int, path: str) -> dict[str, Any]:
    """Four processes go on after a step without a fifth worker: the whole model before and after, and a loss.

    Until then every process acts all five workers, with the same outcome.
    """
    job = job_of(text, path)
    seats, start = [job.seat(each, 5, 0) for each in range(5)], job.network.initial(0)
    members: list[Any] = [job.algorithm.begin(job.network, job.learning, seat, start) for seat in seats]
    for number in range(first):
        converse_together([each.step(number, job.part(number, i, 5)) for i, each in enumerate(members)])
    before = converse_together([each.merged() for each in members])[0]
    memory = Memory()
    memory.push(first, seats[rank], members[rank].kept())
    member: Any = regroup(job, memory, job.seat(rank, 4, first))
    after = converse(member.merged())
    return {
        "before": {name: each.numpy() for name, each in before.items()},
        "after": {name: each.numpy() for name, each in after.items()},
        "loss": converse(member.step(first, job.part(first, rank, 4))),
    }  # fmt: skip


def four_of_fewer(rank: int, text: str, fewer: int, first: int, path: str) -> dict[str, Any]:
    """Four processes go on after a step that only the first few of them have taken part in, until the end.

    Until then every process acts these, with the same outcome.
    """
    job = job_of(text, path)
    seats, start = [job.seat(each, fewer, 0) for each in range(fewer)], job.network.initial(0)
    members: list[Any] = [job.algorithm.begin(job.network, job.learning, seat, start) for seat in seats]
    for number in range(first):
        converse_together([each.step(number, job.part(number, i, fewer)) for i, each in enumerate(members)])
    before, memory = converse_together([_unscaled(each) for each in members])[0], Memory()
    if rank < fewer:
        memory.push(first, seats[rank], members[rank].kept())
    step = recall(memory)
    member: Any = regroup(job, memory, job.seat(rank, 4, step))
    after = converse(_unscaled(member))
    losses = [converse(member.step(each, job.part(each, rank, 4))) for each in range(step, 12)]
    return {
        "step": step, "before": {name: each.numpy() for name, each in before.items()},
        "after": {name: each.numpy() for name, each in after.items()}, "losses": losses,
        "end": {name: each.numpy() for name, each in converse(_unscaled(member)).items()},
    }  # fmt: skip


def _unscaled(member: Any) -> Any:
    return member.merged() if isinstance(member, IstMember) else member.whole()


def job_of(text: str, path: str) -> Job:
    """A run of five workers and twelve steps, as the command line understands it."""
    words = [path, "dp5", "--algorithm", text, "--steps", "12", "--batch", "20", "--seq", "8"]
    return parse_job(parse_command("run", *words))
