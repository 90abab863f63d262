"""What workers keep of a vector under Rand-K and Perm-K: masks of zeros and ones, and their exact moments."""

from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.sketch import Windows
from trainwright.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Rand-K: `kept` coordinates at random, workers apart; Perm-K: a worker's d/n of one random order."""

    dims: int
    workers: int
    kept: int
    kind: Literal["rand", "perm"] = "rand"

    def __post_init__(self) -> None:
        d, n = self.dims, self.workers
        if not 1 <= self.kept <= d:
            raise BadInput("coordinates that are kept", self.kept, f"are not 1 to {d}", "correct it")
        if self.kind == "perm" and self.kept * n != d:
            rule = f"of {d} are not 1/{n} of them, which each worker of Perm-K keeps"
            raise BadInput("coordinates that are kept", self.kept, rule, "change one, or use Rand-K")

    @property
    def share(self) -> float:
        """K/d, the chance that a worker keeps a coordinate."""
        return self.kept / self.dims

    @property
    def factor(self) -> float:
        """d/(K n): the sum of what workers keep, times this, is on average the mean of what they have."""
        return self.dims / (self.kept * self.workers)

    def covariance(self) -> Array:
        """The covariance of all masks in one row, worker after worker: n d by n d."""
        d, n, k = self.dims, self.workers, self.kept
        pairs = d * max(d - 1, 1)
        own = _pairs(d, on=k / d, off=k * (k - 1) / pairs)
        other = _pairs(d, on=0.0, off=k * k / pairs) if self.kind == "perm" else np.full((d, d), (k / d) ** 2)
        both = np.kron(np.ones((n, n)), other) + np.kron(np.eye(n), own - other)
        return np.asarray(both - self.share**2)

    def draw(self, count: int, source: np.random.Generator) -> Array:
        """Masks of so many independent rounds: rounds by workers by d."""
        if self.kind == "perm":
            return self._windows().draw(count, source)
        scores = source.random((count, self.workers, self.dims))
        return np.asarray((scores.argsort(-1).argsort(-1) < self.kept).astype(float))

    def every(self) -> Array:
        """All masks there are, equally likely; for small d and n."""
        if self.kind == "perm":
            return self._windows().every()
        subsets = combinations(range(self.dims), self.kept)
        one = [np.isin(np.arange(self.dims), chosen).astype(float) for chosen in subsets]
        return np.array(list(product(one, repeat=self.workers)))

    def _windows(self) -> Windows:
        return Windows(dims=self.dims, workers=self.workers, held=self.kept)


def _pairs(dims: int, on: float, off: float) -> Array:
    """d by d numbers, `on` the diagonal and `off` it."""
    return np.asarray(np.full((dims, dims), off) + (on - off) * np.eye(dims))
