"""EF21: every worker's estimate of its gradient moves by a compressed difference (Richtárik et al. 2021)."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainwright.algorithm.anatomy import Anatomy
from trainwright.algorithm.compressed import packed_messages
from trainwright.algorithm.compressor.protocol import Compressor
from trainwright.algorithm.compressor.registry import build_compressor
from trainwright.algorithm.exact import whole_compute, whole_memory
from trainwright.algorithm.message import Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.reducer import Step, begin_reduced, draw_of, tell

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Ef21:
    """g_i += C(grad_i - g_i) with a contractive C, and the mean of all g_i is stepped along; at first 0."""

    by: str = "top-k"
    share: float = 0.1
    levels: int = 7

    def __post_init__(self) -> None:
        self.compressor()

    def compressor(self) -> Compressor:
        """What makes differences small."""
        return build_compressor(self.by, self.share, self.levels)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights and estimates of 0."""
        remembered = ("estimate", "mean_estimate")
        reducer = partial(Ef21Reducer, self, seat)
        return begin_reduced(reducer, remembered, network, learning, seat, start)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """The compressed difference."""
        return packed_messages(self.compressor(), anatomy, seat)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, the worker's estimate and the mean of all."""
        return whole_memory(anatomy, 2.0 if workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


@dataclass(slots=True)
class Ef21Reducer:
    """The mean of all estimates."""

    algorithm: Ef21
    seat: Seat
    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """Move the estimates by compressed differences."""
        compressor, draw = self.algorithm.compressor(), draw_of(self.seat, step.number)
        own, mean = yield from tell(compressor, gradient - self.kept["estimate"], draw, contract=True)
        self.kept["estimate"] = self.kept["estimate"] + own
        self.kept["mean_estimate"] = self.kept["mean_estimate"] + mean
        return self.kept["mean_estimate"].clone()
