"""Subnetworks on quadratics: x+ = x - c (A x - s), A = w Sum P_i L_i P_i, s = v Sum P_i b_i.

P_i projects on the coordinates that worker i holds. In practice w = v = 1/(number of holders); in the paper's
scaling (arXiv 2306.16484, C_i = n P_i, disjoint) w = n and v = 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.moments import Recursion
from trainwright.algorithm.theory.quadratic import Quadratic
from trainwright.algorithm.theory.sketch import Windows

Array = NDArray[np.float64]
Counts = NDArray[Any]  # whole numbers
Grid = tuple[Counts, ...]  # coordinates, one array for each index


@dataclass(frozen=True, kw_only=True)
class Subnetworks:
    """One local step a round, windows of `held` coordinates, the paper's scaling or practice's."""

    quadratic: Quadratic
    held: int
    scaled: bool = False  # as in the paper

    @cached_property
    def windows(self) -> Windows:
        """The sketch."""
        return Windows(dims=self.quadratic.dims, workers=self.quadratic.workers, held=self.held)

    @property
    def weights(self) -> tuple[float, float]:
        """w and v."""
        holders = self.quadratic.workers * self.windows.share
        return (self.quadratic.workers / holders if self.scaled else 1.0 / holders), 1.0 / holders

    def mean_matrix(self) -> Array:
        """E A = M = a L + (1 - a) diag L, or n times it in the paper's scaling; a = (m - 1)/(d - 1)."""
        a, bent = self.windows.mixing, self.quadratic.mean_curvature
        mixed = a * bent + (1.0 - a) * np.diag(np.diag(bent))
        return mixed * self.quadratic.workers if self.scaled else mixed

    def fixed_point(self) -> Array:
        """Where the mean goes: M^-1 b, which minimises E Sum f_i(P_i x), a problem like dropout's."""
        found = np.linalg.solve(self.mean_matrix(), self.quadratic.mean_slope)
        return np.asarray(found, dtype=np.float64)

    def bias(self) -> Array:
        """The fixed point less the minimum: no step size removes it."""
        return self.fixed_point() - self.quadratic.minimum

    def sampled(self, masks: Array) -> tuple[Array, Array]:
        """A and s for masks of rounds: rounds by d by d, rounds by d."""
        w, v = self.weights
        bent = np.einsum("kij,ijl,kil->kjl", masks, self.quadratic.curvature, masks)
        return w * bent, v * np.einsum("kij,ij->kj", masks, self.quadratic.slope)

    def recursion(self) -> Recursion:
        """All that follows from means and second moments, exactly."""
        return Recursion(
            mean=self.mean_matrix(), mean_slope=self.quadratic.mean_slope, conjugate=self._conjugate,
            noise=self._noise,
        )  # fmt: skip

    @cached_property
    def _squares(self) -> Array:
        """E[A_jk A_lm], d^4 numbers."""
        bent, d = self.quadratic.curvature, self.quadratic.dims
        sums = _by_overlap(self.windows, lambda i, u: np.multiply.outer(bent[i], bent[u]))
        j, k, p, m = np.indices((d, d, d, d), sparse=True)
        return self.weights[0] ** 2 * _weighted(self.windows, sums, (j, k), (p, m))

    @cached_property
    def _crosses(self) -> Array:
        """E[s_j A_lm], d^3 numbers."""
        bent, slope, d = self.quadratic.curvature, self.quadratic.slope, self.quadratic.dims
        sums = _by_overlap(self.windows, lambda i, u: np.multiply.outer(slope[i], bent[u]))
        j, p, m = np.indices((d, d, d), sparse=True)
        return self.weights[0] * self.weights[1] * _weighted(self.windows, sums, (j,), (p, m))

    @cached_property
    def _slopes(self) -> Array:
        """E[s_j s_l]."""
        slope, d = self.quadratic.slope, self.quadratic.dims
        sums = _by_overlap(self.windows, lambda i, u: np.multiply.outer(slope[i], slope[u]))
        j, p = np.indices((d, d), sparse=True)
        return self.weights[1] ** 2 * _weighted(self.windows, sums, (j,), (p,))

    def _conjugate(self, moment: Array) -> Array:
        return np.asarray(np.einsum("jklm,km->jl", self._squares, moment))

    def _noise(self, x: Array) -> Array:
        crossed = np.einsum("jlm,m->jl", self._crosses, x)
        return np.asarray(self._slopes - crossed - crossed.T + self._conjugate(np.outer(x, x)))


def _by_overlap(windows: Windows, multiply: Callable[[int, int], Array]) -> dict[int, Array]:
    """Sums over pairs of workers of a product, by how many places their windows share."""
    found: dict[int, Array] = {}
    for i in range(windows.workers):
        for u in range(windows.workers):
            overlap = int(windows.overlaps[i, u])
            found[overlap] = multiply(i, u) + found.get(overlap, 0.0)
    return found


def _weighted(windows: Windows, sums: dict[int, Array], mine: Grid, theirs: Grid) -> Array:
    """Sums of products, each times the chance that one worker holds `mine` and the other `theirs`."""
    first, second, both = _counts(mine, theirs)
    chances = np.zeros((len(sums), 3, 3, 3))  # by how many are only mine, only theirs, both
    for (place, overlap), a, b, c in product(enumerate(sums), range(3), range(3), range(3)):
        if a + b + c <= windows.dims:
            chances[place, a, b, c] = windows.chance(a, b, c, overlap)
    return np.asarray(
        sum(chances[place][first, second, both] * each for place, each in enumerate(sums.values()))
    )


def _counts(mine: Grid, theirs: Grid) -> tuple[Counts, Counts, Counts]:
    """How many distinct coordinates are only among `mine`, only among `theirs`, and among both."""
    own, shared = _distinct(mine, theirs)
    other, _ = _distinct(theirs, mine)
    return own, other, shared


def _distinct(mine: Grid, theirs: Grid) -> tuple[Counts, Counts]:
    alone: Counts = np.zeros(1, dtype=np.int64)
    shared: Counts = np.zeros(1, dtype=np.int64)
    for place, each in enumerate(mine):
        fresh = np.ones(1, dtype=bool)
        for earlier in mine[:place]:
            fresh = fresh & (each != earlier)
        met = np.zeros(1, dtype=bool)
        for other in theirs:
            met = met | (each == other)
        alone, shared = alone + (fresh & ~met), shared + (fresh & met)
    return alone, shared
