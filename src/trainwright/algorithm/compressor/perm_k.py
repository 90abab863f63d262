"""Perm-K: workers send disjoint parts of a random order, times their count (Szlendak et al. 2022)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.algorithm.compressor.protocol import Draw
from trainwright.algorithm.message import FLOAT_BYTES

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class PermK:
    """The mean over the workers of what they send has no variance if all have the same vector."""

    unbiased: bool = True

    def packed_bytes(self, count: int, workers: int) -> int:
        """1/n of the numbers, rounded up."""
        return FLOAT_BYTES * -(-count // workers)

    def omega(self, count: int, workers: int) -> float:
        """n - 1, for one worker; of the mean it is the spread of the workers' vectors."""
        return workers - 1.0

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """This worker's part, scaled, and zeros up to the largest part."""
        chosen = self._chosen(len(values), draw)
        found = values.new_zeros(-(-len(values) // draw.workers))
        found[: len(chosen)] = values[chosen] * draw.workers
        return found

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """The part in its places."""
        chosen, found = self._chosen(count, draw), packed.new_zeros(count)
        found[chosen] = packed[: len(chosen)]
        return found

    def _chosen(self, count: int, draw: Draw) -> "torch.Tensor":
        """This worker's part; if some are longer, whose that is changes, or C would be biased for each."""
        part = (draw.rank + draw.turn()) % draw.workers if count % draw.workers else draw.rank
        return draw.common_order(count)[part * count // draw.workers : (part + 1) * count // draw.workers]
