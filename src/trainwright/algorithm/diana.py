"""DIANA: compressed differences from a shift that learns the gradient (Mishchenko et al. 2019)."""

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
from trainwright.errors import BadInput

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Diana:
    """m_i = C(g_i - h_i), g = h + mean m_i, h_i += a m_i, with a = 1/(1 + omega) and an unbiased C."""

    by: str = "rand-k"
    share: float = 0.1
    levels: int = 7

    def __post_init__(self) -> None:
        if not self.compressor().unbiased:
            raise BadInput("diana's by", self.by, "is biased", "use rand-k, perm-k, natural or qsgd, or ef21")

    def compressor(self) -> Compressor:
        """What makes differences small."""
        return build_compressor(self.by, self.share, self.levels)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights and shifts of 0."""
        remembered = ("shift", "mean_shift")
        reducer = partial(DianaReducer, self, seat)
        return begin_reduced(reducer, remembered, network, learning, seat, start)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """The compressed difference."""
        return packed_messages(self.compressor(), anatomy, seat)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, the worker's shift and the mean of all shifts."""
        return whole_memory(anatomy, 2.0 if workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model."""
        return whole_compute(anatomy)


@dataclass(slots=True)
class DianaReducer:
    """The mean shift and the mean of compressed differences from shifts."""

    algorithm: Diana
    seat: Seat
    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """Compress the difference from the shift, and move the shift."""
        compressor, draw = self.algorithm.compressor(), draw_of(self.seat, step.number)
        own, mean = yield from tell(compressor, gradient - self.kept["shift"], draw, contract=False)
        found: torch.Tensor = self.kept["mean_shift"] + mean
        rate = 1.0 / (1.0 + compressor.omega(len(gradient), self.seat.workers))
        self.kept["shift"] = self.kept["shift"] + rate * own
        self.kept["mean_shift"] = self.kept["mean_shift"] + rate * mean
        return found
