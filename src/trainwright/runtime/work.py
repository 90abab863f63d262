"""One operator's part on one device: what a kernel is given."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from zlib import crc32

import torch

from trainwright.model.graph import Op

Span = tuple[int, int]  # from and to, within a whole dim
IGNORED = -100  # the target of an answer that does not count in a loss


class Meet(Protocol):
    """Attention of queries to keys, told as PyTorch's is."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        scale: float | None = None,
        is_causal: bool = False,
        attn_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The mean of values by how much their keys are liked, each times its weight if it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One operator's part in one microbatch.

    Tensors lie as the operator names their dims, and `at` says which part of each dim they are; `sizes` are
    those of whole dims. Where results are sums over devices, `adds` says whether this one adds a weight that
    all of them hold, such as a bias; where it does not, the weight's gradient must flow all the same (add
    `x - x.detach()`). `seed` is that of the operator in one step, and `sample` the number of the first sample
    in that step: what is random depends on them and on the place in a sample, so not on the plan. In an
    evaluation (`learns` is false) nothing is dropped. `meet` stands for attention to the keys that are here
    where those are but a block of all.
    """

    op: Op
    sizes: Mapping[str, int]
    at: Mapping[str, Span]
    inputs: tuple[torch.Tensor, ...]
    weights: Mapping[str, torch.Tensor]
    adds: Mapping[str, bool] = field(default_factory=dict)
    seed: int = 0
    sample: int = 0
    learns: bool = True
    meet: Meet | None = None

    def length(self, dim: str) -> int:
        """How much of a dim is here."""
        low, high = self.at[dim]
        return high - low


Kernel = Callable[[Work], tuple[torch.Tensor, ...]]  # the operator's results in order, differentiable


def is_bias(name: str) -> bool:
    """Whether a weight is a bias, by its name."""
    return name.endswith("bias")


def op_seed(seed: int, instance: str) -> int:
    """The seed of one operator in one step: the same under every plan."""
    return (seed << 32) ^ crc32(instance.encode())
