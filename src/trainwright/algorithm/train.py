"""Training a network by an algorithm: on real processes, or with all workers in this one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from trainwright.algorithm.counting import Tally, counted
from trainwright.algorithm.learning import Learning
from trainwright.algorithm.message import payload, sent_bytes
from trainwright.algorithm.network import Batch, Network
from trainwright.algorithm.protocol import Algorithm, Member, Seat, Talk, Values
from trainwright.algorithm.talk import converse, converse_together
from trainwright.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is learned: a network, the batch of every step (of all workers), and how a model is judged.

    `judge` gives numbers of a whole model by name, such as its loss and accuracy on samples held out.
    """

    network: Network
    batch: Callable[[int], Batch]
    judge: Callable[[Values], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A run after some steps: what its model is worth, and what a worker has said until then."""

    step: int
    judged: Mapping[str, float]
    payload_bytes: Mapping[str, float]  # passed to collectives, by kind
    sent_bytes: float  # over a worker's link


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A whole run: the mean loss of all workers in each step, points on the way, and the last model."""

    losses: tuple[float, ...]
    points: tuple[Point, ...]
    values: Values

    @property
    def last(self) -> Point:
        """The run after its last step."""
        return self.points[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How a task is to be trained."""

    algorithm: Algorithm
    learning: Learning
    workers: int
    steps: int
    seed: int = 0  # of first weights and of all that the algorithm draws
    judge_every: int = 0  # steps; 0: at the end only

    def judges(self, step: int) -> bool:
        """Whether the model is judged after a step."""
        return step + 1 == self.steps or bool(self.judge_every and (step + 1) % self.judge_every == 0)

    def seat(self, rank: int) -> Seat:
        """The place of a worker."""
        return Seat(rank=rank, workers=self.workers, steps=self.steps, seed=self.seed)


def train(task: Task, order: Order) -> Course:
    """The run with all workers in this process: the same mathematics, without processes.

    Bytes are those that the algorithm states, which on processes are those that are measured.
    """
    start = task.network.initial(order.seed)
    members = [_begin(task, order, rank, start) for rank in range(order.workers)]
    return _run(task, order, members, converse_together)


def train_here(task: Task, order: Order) -> tuple[Course, Tally]:
    """The run as one process of a group, and what it has passed to collectives; all processes call alike."""
    rank = dist.get_rank()
    if dist.get_world_size() != order.workers:
        raise BadInput(
            "workers", order.workers, f"{dist.get_world_size()} processes started", "start as many"
        )
    member = _begin(task, order, rank, task.network.initial(order.seed))
    with counted() as tally:
        return _run(task, order, [member], lambda talks: [converse(talks[0])], tally), tally


def _begin(task: Task, order: Order, rank: int, start: Values) -> Member:
    return order.algorithm.begin(task.network, order.learning, order.seat(rank), start)


def _run(
    task: Task,
    order: Order,
    members: Sequence[Member],
    carry_out: Callable[[Sequence[Talk[Any]]], list[Any]],
    tally: Tally | None = None,
) -> Course:
    first = dist.get_rank() if tally is not None else 0
    losses: list[float] = []
    points: list[Point] = []
    values: Values = {}
    for number in range(order.steps):
        batch = checked(task.batch(number), order.workers)
        parts = [batch.part(first + i, order.workers) for i in range(len(members))]
        found = carry_out([m.step(number, part) for m, part in zip(members, parts, strict=True)])
        losses.append(sum(found) / len(found))
        if order.judges(number):
            with _unseen(tally):
                values = carry_out([member.whole() for member in members])[0]
            points.append(_point(task, order, number, values))
    return Course(losses=tuple(losses), points=tuple(points), values=values)


@contextmanager
def _unseen(tally: Tally | None) -> Iterator[None]:
    """Judging a model is no part of what its training costs."""
    if tally is None:
        yield
        return
    tally.paused = True
    yield
    tally.paused = False


def _point(task: Task, order: Order, number: int, values: Values) -> Point:
    anatomy, seat = task.network.anatomy, order.seat(0)
    said = [each for step in range(number + 1) for each in order.algorithm.messages(anatomy, seat, step)]
    with torch.no_grad():
        judged = task.judge(values)
    return Point(
        step=number + 1, judged=judged, payload_bytes=payload(said),
        sent_bytes=sum(sent_bytes(each, order.workers) for each in said),
    )  # fmt: skip


def checked(batch: Batch, workers: int) -> Batch:
    """The batch, if it can be dealt to so many workers."""
    if len(batch.inputs) % workers:
        rule = f"cannot be dealt to {workers} workers"
        raise BadInput("batch", len(batch.inputs), rule, "use a multiple of their count")
    return batch
