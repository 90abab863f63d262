"""Workers that agree on a gradient in every step, each kind in its own way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainwright.algorithm.compressor.protocol import Compressor, Draw
from trainwright.algorithm.exact import ExactMember
from trainwright.algorithm.protocol import Member, Seat, Talk, Values
from trainwright.algorithm.talk import Gather

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.local import Local
    from trainwright.algorithm.network import Batch, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a reducer may look at: the step's number, and the local weights and samples."""

    number: int
    local: "Local"
    batch: "Batch"


class Reducer(Protocol):
    """Makes one gradient of those of all workers; `kept` is what it remembers."""

    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """The gradient that every worker steps along."""
        ...


@dataclass(slots=True)
class GradientMember:
    """A worker that steps along the gradient that its reducer makes."""

    local: "Local"
    seat: Seat
    reducer: Reducer

    def step(self, number: int, batch: "Batch") -> Talk[float]:
        """Learn from the gradient of all."""
        loss, gradient = self.local.gradient(batch)
        step = Step(number=number, local=self.local, batch=batch)
        gradient = yield from self.reducer.reduce(gradient, step)
        self.local.update(gradient, number)
        return loss

    def whole(self) -> "Talk[dict[str, torch.Tensor]]":
        """The weights, which are the same everywhere."""
        yield from ()
        return self.local.values()

    def kept(self) -> dict[str, Any]:
        """Weights, optimizer, and what the reducer remembers."""
        return {"local": self.local.kept(), "reducer": self.reducer.kept}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from them."""
        self.local.take_over(kept["local"])
        self.reducer.kept = {name: each.clone() for name, each in kept["reducer"].items()}


def begin_reduced(
    build: "Callable[[dict[str, torch.Tensor]], Reducer]",
    remembered: tuple[str, ...],
    network: "Network",
    learning: "Learning",
    seat: Seat,
    start: Values,
) -> Member:
    """A worker with all weights, whose reducer remembers vectors under these names, 0 at first.

    Alone it has nobody to agree with, and remembers nothing.
    """
    from trainwright.algorithm.local import Local

    local = Local(network, learning, start)
    if seat.workers == 1:
        return ExactMember(local, seat)
    kept = {name: local.flat.new_zeros(len(local.flat)) for name in remembered}
    return GradientMember(local, seat, build(kept))


def draw_of(seat: Seat, number: int) -> Draw:
    """The chance of a worker in a step."""
    return Draw(seed=seat.seed, step=number, rank=seat.rank, workers=seat.workers)


def tell(
    compressor: Compressor, values: "torch.Tensor", draw: Draw, *, contract: bool
) -> "Talk[tuple[torch.Tensor, torch.Tensor]]":
    """What this worker's vector became, and the mean of what those of all became.

    An unbiased compressor is made contractive, if that is asked for, by division by 1 + omega.
    """
    count = len(values)

    def read(found: "list[torch.Tensor]") -> "tuple[list[torch.Tensor], torch.Tensor]":
        each = [compressor.unpack(packed, count, draw.of(rank)) for rank, packed in enumerate(found)]
        return each, sum(each[1:], start=each[0])

    became, total = yield Gather(compressor.pack(values, draw), read)
    shrink = contract and compressor.unbiased
    factor = 1.0 / (1.0 + compressor.omega(count, draw.workers)) if shrink else 1.0
    return became[draw.rank] * factor, total * (factor / draw.workers)
