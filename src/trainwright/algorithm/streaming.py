"""Streaming DiLoCo: parts of a model meet in turn, and are mixed in late (Douillard et al. 2025)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.checks import check_every, check_outer, check_share, check_whole
from trainwright.algorithm.diloco import outer_step
from trainwright.algorithm.exact import Exact, whole_compute, whole_memory
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.talk import Sum
from trainwright.errors import BadInput

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.local import Local
    from trainwright.algorithm.network import Batch, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingDiLoCo:
    """Each of `fragments` parts meets once in `every` steps, at evenly spaced steps, and all after the last.

    What a part's meeting finds is mixed in `delay` steps later, while steps go on: `mixed` of it, the rest
    stays as the worker has it by then. Parts are weights after one another, about equally many numbers each.
    """

    every: int = 50
    fragments: int = 4
    delay: int = 1
    mixed: float = 0.5
    rate: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_every(self.every)
        for name, least in (("fragments", 1), ("delay", 0)):
            check_whole(name, getattr(self, name), least)
        check_share("mixed", self.mixed)
        check_outer(self.rate, self.momentum)
        if self.fragments > self.every or self.delay >= self.every:
            rule = f"leaves no step for each of {self.fragments} fragments and a delay of {self.delay}"
            raise BadInput("streaming-diloco's every", self.every, rule, "use more steps")

    def bounds(self, anatomy: Anatomy) -> tuple[tuple[int, int], ...]:
        """Where each part of the weights begins and ends; some may be empty in a model of few weights."""
        ends, total = list(accumulate(each.elements for each in anatomy.weights)), anatomy.elements
        wanted = [part * total / self.fragments for part in range(1, self.fragments)]
        cuts = [min((abs(end - each), end) for end in ends)[1] for each in wanted]
        return tuple(pairwise((0, *cuts, total)))

    def meeting(self, step: int, seat: Seat) -> tuple[int, ...]:
        """The parts that meet after a step."""
        if step + 1 == seat.steps:
            return tuple(range(self.fragments))
        since = [step + 1 - self._turn(part) for part in range(self.fragments)]
        return tuple(part for part, each in enumerate(since) if each >= 0 and each % self.every == 0)

    def _turn(self, part: int) -> int:
        """The step after which a part meets first."""
        return (part + 1) * self.every // self.fragments

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights, and the outer model."""
        if seat.workers == 1:
            return Exact().begin(network, learning, seat, start)
        from trainwright.algorithm.local import Local

        local = Local(network, learning, start)
        zeros = local.flat.new_zeros(len(local.flat))
        return StreamingMember(self, local, seat, self.bounds(network.anatomy), local.flat.clone(), zeros, {})

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """The parts that meet."""
        parts = self.meeting(step, seat)
        if seat.workers == 1 or not parts:
            return ()
        bounds = self.bounds(anatomy)
        sizes = [bounds[k][1] - bounds[k][0] for k in parts]
        return tuple(Message(kind="all-reduce", bytes=FLOAT_BYTES * size) for size in sizes if size)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, the outer model and its momentum."""
        return whole_memory(anatomy, 2.0 if workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


@dataclass(slots=True)
class StreamingMember:
    """A worker of streaming DiLoCo; `due` has the step at which each part's last meeting is mixed in."""

    algorithm: StreamingDiLoCo
    local: "Local"
    seat: Seat
    bounds: tuple[tuple[int, int], ...]
    outer: "torch.Tensor"
    speed: "torch.Tensor"
    due: dict[int, int]

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn alone; let parts meet, and mix in what earlier meetings found."""
        loss = self.local.learn(number, batch)
        last = number + 1 == self.seat.steps
        if last:
            self._mix_due(number + self.algorithm.delay, self.algorithm.mixed)
        for part in self.algorithm.meeting(number, self.seat):
            low, high = self.bounds[part]
            if low < high:
                yield from self._meet(low, high)
                self.due[part] = number + self.algorithm.delay
        if last:
            self._mix_due(number + self.algorithm.delay, 1.0)
        self._mix_due(number, self.algorithm.mixed)
        return loss

    def _mix_due(self, step: int, share: float) -> None:
        """Mix in what is due until a step."""
        for part in [part for part, when in self.due.items() if when <= step]:
            self._mix(part, share)

    def _meet(self, low: int, high: int) -> Talk[None]:
        total = yield Sum(self.outer[low:high] - self.local.flat[low:high])
        change = total / self.seat.workers
        outer_step(self.outer[low:high], self.speed[low:high], change, self.algorithm)

    def _mix(self, part: int, share: float) -> None:
        low, high = self.bounds[part]
        own = self.local.flat[low:high]
        own.mul_(1.0 - share).add_(share * self.outer[low:high])
        del self.due[part]

    def whole(self) -> "Talk[dict[str, torch.Tensor]]":
        """The outer model."""
        yield from ()
        return self.local.named(self.outer)

    def kept(self) -> dict[str, Any]:
        """Weights, optimizer, outer model, and what is still to be mixed in."""
        return {"local": self.local.kept(), "outer": self.outer, "speed": self.speed, "due": dict(self.due)}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.local.take_over(kept["local"])
        self.outer.copy_(kept["outer"])
        self.speed.copy_(kept["speed"])
        self.due = dict(kept["due"])
