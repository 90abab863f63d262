"""The two theorems of the analysis of independent subnetworks (arXiv 2306.16484), as numbers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.quadratic import Quadratic
from trainwright.algorithm.theory.subnetworks import Subnetworks
from trainwright.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WithoutSlope:
    """Theorem 1 (all b_i = 0): W = (L E[B] + E[B] L)/2 and theta, the least with E[B L B] <= theta W.

    For steps up to 1/theta, E|x^k - x*|^2_L shrinks at least by 1 - c lambda_min(L^-1/2 W L^-1/2) a step.
    """

    subnetworks: Subnetworks

    @cached_property
    def weight(self) -> Array:
        """W; it may be indefinite, which alone does not mean divergence."""
        bent, mean = self.subnetworks.quadratic.mean_curvature, self.subnetworks.mean_matrix()
        return 0.5 * (bent @ mean + mean @ bent)

    def definite(self) -> bool:
        """Whether the theorem says anything: W has no negative eigenvalue."""
        return bool(np.linalg.eigvalsh(self.weight).min() >= 0.0)

    def theta(self) -> float:
        """The least theta; for C = I it is the largest eigenvalue of L."""
        if not self.definite():
            raise BadInput("theorem 1", "W", "is indefinite", "weaken the coupling, or scale coordinates")
        root = _power(self.weight, -0.5)
        recursion = self.subnetworks.recursion()
        moved = recursion.conjugate(self.subnetworks.quadratic.mean_curvature)
        return float(np.linalg.eigvalsh(root @ moved @ root).max())

    def rate(self, step: float) -> float:
        """What E|x - x*|^2_L is multiplied by in a step, at most."""
        root = _power(self.subnetworks.quadratic.mean_curvature, -0.5)
        return 1.0 - step * float(np.linalg.eigvalsh(root @ self.weight @ root).min())


@dataclass(frozen=True, kw_only=True)
class OneCoordinate:
    """Theorem 2: one coordinate per worker (n = d), scaled by sqrt(n) D_i^-1/2, so that B = I always."""

    quadratic: Quadratic

    def __post_init__(self) -> None:
        if self.quadratic.workers != self.quadratic.dims:
            rule = f"{self.quadratic.dims} coordinates are not one for each of {self.quadratic.workers}"
            raise BadInput("theorem 2", "n", rule, "use as many workers as coordinates")

    @cached_property
    def terms(self) -> Array:
        """What worker i adds to coordinate j if it holds that: n^-1/2 D_i^-1/2 b_i."""
        q = self.quadratic
        diagonal = np.einsum("ijj->ij", q.curvature)
        return np.asarray(q.slope / np.sqrt(diagonal * q.workers))

    def fixed_point(self) -> Array:
        """n^-3/2 Sum D_i^-1/2 b_i."""
        return np.asarray(self.terms.mean(0))

    def distance(self) -> float:
        """|h|^2_L, h = x* less the fixed point: a neighbourhood that no step size removes."""
        h = self.quadratic.minimum - self.fixed_point()
        return float(h @ self.quadratic.mean_curvature @ h)

    def variance(self) -> float:
        """sigma^2 = E|g - E g|^2_L."""
        n, terms = self.quadratic.workers, self.terms
        pairs = (np.outer(terms.sum(0), terms.sum(0)) - terms.T @ terms) / (n * (n - 1))
        np.fill_diagonal(pairs, (terms**2).mean(0))
        spread = pairs - np.outer(self.fixed_point(), self.fixed_point())
        return float((self.quadratic.mean_curvature * spread).sum())

    def limit(self, step: float) -> float:
        """E|grad f|^2 in the norm of L^-1, in the long run: |h|^2_L + c/(2 - c) sigma^2, exactly."""
        return self.distance() + step / (2.0 - step) * self.variance()

    def expected(self, start: Array, step: float, rounds: int) -> Array:
        """E|x^k - x*|^2_L for k = 0 ... rounds, exactly."""
        gone = (1.0 - step) ** np.arange(rounds + 1)
        mean = self.fixed_point() + gone[:, None] * (start - self.fixed_point()) - self.quadratic.minimum
        spread = step / (2.0 - step) * (1.0 - gone**2) * self.variance()
        return np.asarray(np.einsum("kj,jl,kl->k", mean, self.quadratic.mean_curvature, mean) + spread)

    def bound(self, start: Array, step: float, rounds: int) -> float:
        """The theorem's bound on the mean of E|grad f(x^k)|^2 over `rounds` steps, with the best beta."""
        beta = 0.5 * (1.0 - step) / (1.0 + step)  # step = (1/2 - beta)/(1/2 + beta)
        values = self.expected(start, step, rounds)  # 2 (f - f*)
        fallen = (values[0] - values[-1]) / (step * rounds)
        return float(fallen + (2 * (1 - step) / beta + step) * self.distance() + step * self.variance())


def _power(matrix: Array, exponent: float) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * values**exponent) @ vectors.T)
