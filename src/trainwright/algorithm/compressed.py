"""Compressed gradients: what each worker sends of its gradient, with or without feedback of the error."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trainwright.algorithm.anatomy import Anatomy
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
class Compressed:
    """All-gathers of compressed gradients.

    With `feedback` (Seide et al. 2014; Karimireddy et al. 2019) what was not sent is added to the next
    gradient, and unbiased compressors are made contractive. Without, this is distributed compressed
    gradient descent.
    """

    by: str = "top-k"
    share: float = 0.01  # of the numbers, for Rand-K and Top-K
    levels: int = 7  # of QSGD
    feedback: bool = True

    def __post_init__(self) -> None:
        self.compressor()

    def compressor(self) -> Compressor:
        """What makes gradients small."""
        return build_compressor(self.by, self.share, self.levels)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights and an error of 0."""
        remembered = ("error",) if self.feedback else ()
        reducer = partial(CompressedReducer, self, seat)
        return begin_reduced(reducer, remembered, network, learning, seat, start)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """The compressed gradient."""
        return packed_messages(self.compressor(), anatomy, seat)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, and the error."""
        return whole_memory(anatomy, 1.0 if self.feedback and workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """The whole model; choosing and packing numbers is traffic of memory, not FLOPs."""
        return whole_compute(anatomy)


def packed_messages(compressor: Compressor, anatomy: Anatomy, seat: Seat) -> tuple[Message, ...]:
    """One all-gather of a packed vector of all weights; none with one worker."""
    size = compressor.packed_bytes(anatomy.elements, seat.workers)
    return (Message(kind="all-gather", bytes=size),) if seat.workers > 1 else ()


@dataclass(slots=True)
class CompressedReducer:
    """The mean of compressed gradients."""

    algorithm: Compressed
    seat: Seat
    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """Compress the gradient and the error before it."""
        feedback = self.algorithm.feedback
        given = gradient + self.kept["error"] if feedback else gradient
        draw = draw_of(self.seat, step.number)
        own, mean = yield from tell(self.algorithm.compressor(), given, draw, contract=feedback)
        if feedback:
            self.kept["error"] = given - own
        return mean
