"""Local SGD: workers learn alone for some steps, then take the mean of their weights (Stich 2019)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.checks import check_every, check_whole
from trainwright.algorithm.exact import whole_compute, whole_memory
from trainwright.algorithm.message import FLOAT_BYTES, Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.talk import Sum

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.local import Local
    from trainwright.algorithm.network import Batch, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSgd:
    """The mean of all weights after every `every` steps, and after the last; in the first `exact` steps the
    gradients are averaged instead, as in post-local SGD (Lin et al. 2020)."""

    every: int = 20
    exact: int = 0

    def __post_init__(self) -> None:
        check_every(self.every)
        check_whole("exact", self.exact, 0)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights."""
        from trainwright.algorithm.local import Local

        return LocalSgdMember(self, Local(network, learning, start), seat)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """All weights when a round ends, or all gradients while steps are exact."""
        if seat.workers == 1 or not (step < self.exact or self.ends_round(step, seat)):
            return ()
        return (Message(kind="all-reduce", bytes=FLOAT_BYTES * anatomy.elements),)

    def ends_round(self, step: int, seat: Seat) -> bool:
        """Whether the workers meet after a step."""
        return step >= self.exact and ((step - self.exact + 1) % self.every == 0 or step + 1 == seat.steps)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights."""
        return whole_memory(anatomy)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


@dataclass(slots=True)
class LocalSgdMember:
    """A worker of local SGD; its optimizer's moments stay its own."""

    algorithm: LocalSgd
    local: "Local"
    seat: Seat

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn alone; take the mean where a round ends."""
        loss, gradient = self.local.gradient(batch)
        if self.seat.workers > 1 and number < self.algorithm.exact:
            gradient = (yield Sum(gradient)) / self.seat.workers
        self.local.update(gradient, number)
        if self.seat.workers > 1 and self.algorithm.ends_round(number, self.seat):
            total = yield Sum(self.local.flat.clone())
            self.local.set_flat(total / self.seat.workers)
        return loss

    def whole(self) -> Talk[dict[str, "torch.Tensor"]]:
        """The mean of all weights."""
        if self.seat.workers > 1:
            total = yield Sum(self.local.flat.clone())
            return self.local.named(total / self.seat.workers)
        return self.local.values()

    def kept(self) -> dict[str, Any]:
        """Weights and optimizer."""
        return {"local": self.local.kept()}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.local.take_over(kept["local"])
