"""One operator's part on one device: what a kernel is given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from trainwright.model.graph import Op

Span = tuple[int, int]  # from and to, within a whole dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator's part in one microbatch.

    Tensors lie as the operator names their dims, and `at` says which part of each dim they are; `sizes` are
    those of whole dims. Where results are sums over devices, `adds` says whether this one adds a weight that
    all of them hold, such as a bias; where it does not, the weight's gradient must flow all the same (add
    `x - x.detach()`). `seed` is the same for the same operator and samples under every plan.
    """

    op: Op
    sizes: Mapping[str, int]
    at: Mapping[str, Span]
    inputs: tuple[torch.Tensor, ...]
    weights: Mapping[str, torch.Tensor]
    adds: Mapping[str, bool] = field(default_factory=dict)
    seed: int = 0

    def length(self, dim: str) -> int:
        """How much of a dim is here."""
        low, high = self.at[dim]
        return high - low


Kernel = Callable[[Work], tuple[torch.Tensor, ...]]  # the operator's results in order, differentiable
