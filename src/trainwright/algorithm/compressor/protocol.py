"""What every compressor is: packed bytes of a vector, and the vector that others read from them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a compressor's chance depends on: all workers know that of the others."""

    seed: int
    step: int
    rank: int
    workers: int

    def generator(self) -> "torch.Generator":
        """Chance that is this worker's own in this step."""
        return _generator(self.seed, self.step, self.rank + 1)

    def common(self) -> "torch.Generator":
        """Chance that all workers share in this step."""
        return _generator(self.seed, self.step, 0)

    def some(self, chosen: int, count: int) -> "torch.Tensor":
        """So many of so many places, drawn by this worker."""
        return _drawn(_new_some, count, self.seed, self.step, self.rank + 1, chosen)

    def common_order(self, count: int) -> "torch.Tensor":
        """So many places in a random order that all workers share."""
        return _drawn(_new_order, count, self.seed, self.step)

    def turn(self) -> int:
        """A number below the count of workers that all share, apart from their order."""
        return int(np.random.default_rng([self.seed, self.step, 0, 1]).integers(self.workers))

    def of(self, rank: int) -> "Draw":
        """What another worker draws."""
        return replace(self, rank=rank)


def _drawn(draw: Callable[..., "torch.Tensor"], count: int, *numbers: int) -> "torch.Tensor":
    """Small draws are kept for a while: with all workers in one process, each asks for those of all."""
    return (_kept if count <= _SMALL else _new)(draw, count, *numbers)


def _new(draw: Callable[..., "torch.Tensor"], count: int, *numbers: int) -> "torch.Tensor":
    return draw(count, *numbers)


_SMALL = 1_000_000
_kept = lru_cache(maxsize=8)(_new)


def _new_order(count: int, seed: int, step: int) -> "torch.Tensor":
    import torch

    return torch.randperm(count, generator=_generator(seed, step, 0))


def _new_some(count: int, seed: int, step: int, who: int, chosen: int) -> "torch.Tensor":
    import torch

    found = np.random.default_rng([seed, step, who]).choice(count, chosen, replace=False, shuffle=False)
    return torch.from_numpy(found)


def _generator(*numbers: int) -> "torch.Generator":
    import torch

    state = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


class Compressor(Protocol):
    """A random map C of vectors. Unbiased ones have E C(a) = a and E|C(a) - a|^2 <= omega |a|^2.

    Contractive ones have E|C(a) - a|^2 <= (1 - alpha)|a|^2; an unbiased one divided by 1 + omega is
    contractive with alpha = 1/(1 + omega).
    """

    @property
    def unbiased(self) -> bool:
        """Whether it is right on average."""
        ...

    def packed_bytes(self, count: int, workers: int) -> int:
        """The size of a packed vector of so many numbers."""
        ...

    def omega(self, count: int, workers: int) -> float:
        """The variance, relative to the square of the norm, at most; of a contractive one 1/alpha - 1."""
        ...

    def pack(self, values: "torch.Tensor", draw: Draw) -> "torch.Tensor":
        """What is sent of a vector."""
        ...

    def unpack(self, packed: "torch.Tensor", count: int, draw: Draw) -> "torch.Tensor":
        """The vector that is read from what the worker of a draw has sent."""
        ...
