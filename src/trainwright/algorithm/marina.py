"""MARINA: compressed differences of gradients, and now and then a whole one (Gorbunov et al. 2021)."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from trainwright.algorithm.anatomy import Anatomy, forward_flops
from trainwright.algorithm.checks import check_share
from trainwright.algorithm.compressed import packed_messages
from trainwright.algorithm.compressor.protocol import Compressor
from trainwright.algorithm.compressor.registry import build_compressor
from trainwright.algorithm.exact import Exact, whole_memory
from trainwright.algorithm.message import Message
from trainwright.algorithm.protocol import Compute, Member, Memory, Seat, Talk, Values
from trainwright.algorithm.reducer import Step, begin_reduced, draw_of, tell
from trainwright.algorithm.talk import Sum
from trainwright.errors import BadInput

if TYPE_CHECKING:
    import torch

    from trainwright.algorithm.learning import Learning
    from trainwright.algorithm.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Marina:
    """In the first step, and with probability `whole` in others, gradients are averaged exactly; else
    g += mean C_i(grad_i(x) - grad_i(x before)), both on the samples of this step, with an unbiased C."""

    by: str = "perm-k"
    share: float = 0.1
    levels: int = 7
    whole: float = 0.1

    def __post_init__(self) -> None:
        check_share("whole", self.whole)
        if not self.compressor().unbiased:
            raise BadInput("marina's by", self.by, "is biased", "use rand-k, perm-k, natural or qsgd")

    def compressor(self) -> Compressor:
        """What makes differences small."""
        return build_compressor(self.by, self.share, self.levels)

    def is_whole(self, step: int, seed: int) -> bool:
        """Whether gradients are averaged exactly in a later step; all workers toss the same coin."""
        return bool(np.random.default_rng([seed, step]).random() < self.whole)

    def begin(self, network: "Network", learning: "Learning", seat: Seat, start: Values) -> Member:
        """A worker with all weights; those before the last step and the last gradient come with a step."""
        return begin_reduced(partial(MarinaReducer, self, seat), (), network, learning, seat, start)

    def messages(self, anatomy: Anatomy, seat: Seat, step: int) -> tuple[Message, ...]:
        """A whole gradient or a compressed difference, as the coin falls.

        Whoever begins later in a run begins with a whole one too, unless it takes over a memory.
        """
        if step == seat.first or self.is_whole(step, seat.seed):
            return Exact().messages(anatomy, seat, step)
        return packed_messages(self.compressor(), anatomy, seat)

    def memory(self, anatomy: Anatomy, workers: int) -> Memory:
        """All weights, those before, and the last gradient."""
        return whole_memory(anatomy, 2.0 if workers > 1 else 0.0)

    def compute(self, anatomy: Anatomy, workers: int) -> Compute:
        """Two gradients of each sample where a difference is sent."""
        times = 1.0 if workers == 1 else 2.0 - self.whole
        return Compute(sample_flops=times * 3.0 * forward_flops(anatomy))


@dataclass(slots=True)
class MarinaReducer:
    """The last gradient, moved by compressed differences."""

    algorithm: Marina
    seat: Seat
    kept: "dict[str, torch.Tensor]"

    def reduce(self, gradient: "torch.Tensor", step: Step) -> "Talk[torch.Tensor]":
        """Average exactly, or move the last gradient."""
        if not self.kept or self.algorithm.is_whole(step.number, self.seat.seed):
            found = (yield Sum(gradient)) / self.seat.workers
        else:
            _, before = step.local.gradient(step.batch, at=self.kept["before"])
            draw = draw_of(self.seat, step.number)
            _, mean = yield from tell(self.algorithm.compressor(), gradient - before, draw, contract=False)
            found = self.kept["gradient"] + mean
        self.kept = {"before": step.local.flat.clone(), "gradient": found}
        return self.kept["gradient"].clone()
