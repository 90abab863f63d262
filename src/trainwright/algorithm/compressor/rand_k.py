"""Rand-K: a random share of the numbers, scaled up; which ones follows from the seed and is not sent."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.compressor.protocol import Draw
from trainwright.algorithm.message import FLOAT_BYTES

if TYPE_CHECKING:
    import torch


def chosen_count(share: float, count: int) -> int:
    """How many of so many numbers a share is: at least one."""
    return min(max(round(share * count), 1), count)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandK:
    """K of d numbers, times d/K: omega = d/K - 1."""

    share: float
    unbiased: bool = True

    def packed_bytes(self, count: int, workers: int) -> int:
        """K numbers."""
        return FLOAT_BYTES * chosen_count(self.share, count)

    def omega(self, count: int, workers: int) -> float:
        """d/K - 1, exactly."""
        return count / chosen_count(self.share, count) - 1.0

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """The chosen numbers, scaled."""
        chosen = self._chosen(len(values), draw)
        return values[chosen] * (len(values) / len(chosen))

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """They, and zeros."""
        found = packed.new_zeros(count)
        found[self._chosen(count, draw)] = packed
        return found

    def _chosen(self, count: int, draw: Draw) -> "torch.Tensor":
        return draw.some(chosen_count(self.share, count), count)
