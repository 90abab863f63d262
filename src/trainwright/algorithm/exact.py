"""Exact data parallelism: the mean gradient of all workers in every step, as DDP does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.algorithm.anatomy import Anatomy, forward_flops
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.talk import Sum

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.local import Local
    from trainwright.algorithm.network import Batch, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """One all-reduce of all gradients per step."""

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights."""
        from trainwright.algorithm.local import Local

        return ExactMember(Local(network, learning, start), seat)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """All gradients, in every step."""
        if seat.workers == 1:
            return ()
        return (Message(kind="all-reduce", bytes=FLOAT_BYTES * anatomy.elements),)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights."""
        return whole_memory(anatomy)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


def whole_memory(anatomy: Anatomy, beside: float = 0.0) -> Memory:
    """All weights, and so many times as much that the algorithm itself remembers."""
    count = anatomy.elements
    return Memory(weights=count, gradients=count, moments=count, beside=beside * count)


def whole_compute(anatomy: Anatomy, step_flops: float = 0.0, step_bytes: float = 0.0) -> Compute:
    """Forward and backward through the whole model: three times the forward FLOPs."""
    return Compute(sample_flops=3.0 * forward_flops(anatomy), step_flops=step_flops, step_bytes=step_bytes)


@dataclass(slots=True)
class ExactMember:
    """A worker of exact data parallelism."""

    local: "Local"
    seat: Seat

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn from the mean gradient."""
        loss, gradient = self.local.gradient(batch)
        if self.seat.workers > 1:
            gradient = (yield Sum(gradient)) / self.seat.workers
        self.local.update(gradient, number)
        return loss

    def whole(self) -> Talk[dict[str, "torch.Tensor"]]:
        """The weights, which are the same everywhere."""
        yield from ()
        return self.local.values()

    def kept(self) -> dict[str, Any]:
        """Weights and optimizer."""
        return {"local": self.local.kept()}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.local.take_over(kept["local"])
