"""DiLoCo: local steps, then an outer Nesterov step along the mean change (Douillard et al. 2023)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.checks import check_every, check_outer
from trainwright.algorithm.exact import Exact, whole_compute, whole_memory
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.talk import Sum

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.local import Local
    from trainwright.algorithm.network import Batch, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class DiLoCo:
    """After every `every` steps, and after the last, all start anew from the outer model.

    With one worker there is no other to agree with, so there are no outer steps.
    """

    every: int = 50
    rate: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_every(self.every)
        check_outer(self.rate, self.momentum)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights, and the outer model."""
        if seat.workers == 1:
            return Exact().begin(network, learning, seat, start)
        from trainwright.algorithm.local import Local

        local = Local(network, learning, start)
        return DiLoCoMember(self, local, seat, local.flat.clone(), local.flat.new_zeros(len(local.flat)))

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """All weights when a round ends."""
        if seat.workers == 1 or not self.ends_round(step, seat):
            return ()
        return (Message(kind="all-reduce", bytes=FLOAT_BYTES * anatomy.elements),)

    def ends_round(self, step: int, seat: Seat) -> bool:
        """Whether the workers meet after a step."""
        return (step + 1) % self.every == 0 or step + 1 == seat.steps

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, the outer model and its momentum."""
        return whole_memory(anatomy, 2.0 if workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


@dataclass(slots=True)
class DiLoCoMember:
    """A worker of DiLoCo: `outer` is the model that all share, `speed` its momentum."""

    algorithm: DiLoCo
    local: "Local"
    seat: Seat
    outer: "torch.Tensor"
    speed: "torch.Tensor"

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn alone; step the outer model where a round ends."""
        loss = self.local.learn(number, batch)
        if self.algorithm.ends_round(number, self.seat):
            total = yield Sum(self.outer - self.local.flat)
            outer_step(self.outer, self.speed, total / self.seat.workers, self.algorithm)
            self.local.set_flat(self.outer)
        return loss

    def whole(self) -> Talk[dict[str, "torch.Tensor"]]:
        """The outer model."""
        yield from ()
        return self.local.named(self.outer)

    def kept(self) -> dict[str, Any]:
        """Weights, optimizer and outer model."""
        return {"local": self.local.kept(), "outer": self.outer, "speed": self.speed}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.local.take_over(kept["local"])
        self.outer.copy_(kept["outer"])
        self.speed.copy_(kept["speed"])


def outer_step(outer: "torch.Tensor", speed: "torch.Tensor", change: "torch.Tensor", rates: Any) -> None:
    """Nesterov's step along the mean change of a round, in place, as `torch.optim.SGD` takes it."""
    speed.mul_(rates.momentum).add_(change)
    outer.sub_(rates.rate * (change + rates.momentum * speed))
