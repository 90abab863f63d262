"""Top-K: the numbers that are largest in magnitude, and where they are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainwright.algorithm.compressor.protocol import Draw
from trainwright.algorithm.compressor.rand_k import chosen_count
from trainwright.algorithm.message import FLOAT_BYTES

if TYPE_CHECKING:
    import torch

_INDEX_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK:
    """K of d numbers as they are: biased, and contractive with alpha = K/d."""

    share: float
    unbiased: bool = False

    def packed_bytes(self, count: int, workers: int) -> int:
        """K numbers and K places."""
        return (FLOAT_BYTES + _INDEX_BYTES) * chosen_count(self.share, count)

    def omega(self, count: int, workers: int) -> float:
        """d/K - 1."""
        return count / chosen_count(self.share, count) - 1.0

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """The bits of the numbers, then their places."""
        import torch

        chosen = _largest(values.abs(), chosen_count(self.share, len(values)))
        return torch.cat([values[chosen].view(torch.int32), chosen.to(torch.int32)])

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """They, and zeros."""
        import torch

        numbers, chosen = packed.chunk(2)
        found = torch.zeros(count)
        found[chosen.long()] = numbers.view(torch.float32)
        return found


def _largest(sizes: "torch.Tensor", count: int) -> "torch.Tensor":
    """Where the largest are; on a CPU NumPy finds them four times as fast."""
    import torch

    if sizes.device.type != "cpu":
        return sizes.topk(count, sorted=False).indices
    rest = len(sizes) - count
    return torch.from_numpy(np.argpartition(sizes.numpy(), rest)[rest:]) if rest else torch.arange(count)
