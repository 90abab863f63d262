"""Compressed gradient descent on quadratics with random subsets of coordinates: exact moments.

x+ = x - c mean C_i (L_i x - b_i), where C_i keeps K coordinates at random, times d/K (Rand-K, workers
apart), or the part of a common random order that is the worker's, times n (Perm-K).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.moments import Recursion
from trainwright.algorithm.theory.quadratic import Quadratic
from trainwright.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CompressedDescent:
    """Rand-K with `kept` coordinates, or Perm-K, which keeps d/n."""

    quadratic: Quadratic
    kept: int
    kind: Literal["rand", "perm"] = "rand"

    def __post_init__(self) -> None:
        d, n = self.quadratic.dims, self.quadratic.workers
        if not 1 <= self.kept <= d:
            raise BadInput("coordinates that are kept", self.kept, f"are not 1 to {d}", "correct it")
        if self.kind == "perm" and self.kept * n != d:
            rule = f"of {d} are not 1/{n} of them, which each worker of Perm-K keeps"
            raise BadInput("coordinates that are kept", self.kept, rule, "change one, or use Rand-K")

    def pair_chances(self) -> tuple[Array, Array]:
        """E[C_i[j] C_u[l]] for one worker and for two, d by d each."""
        d, n, k = self.quadratic.dims, self.quadratic.workers, self.kept
        beside = (d / k) * (k - 1) / (d - 1) if d > 1 else 0.0
        own = np.full((d, d), beside)
        np.fill_diagonal(own, d / k)
        if self.kind == "rand":
            return own, np.ones((d, d))
        other = np.full((d, d), (n * k) ** 2 / (d * max(d - 1, 1)))
        np.fill_diagonal(other, 0.0)
        return own, other

    def recursion(self) -> Recursion:
        """Its mean is gradient descent's, so it goes to x*; its noise vanishes if all gradients do there."""
        return Recursion(
            mean=self.quadratic.mean_curvature, mean_slope=self.quadratic.mean_slope,
            conjugate=self._conjugate, noise=self._noise,
        )  # fmt: skip

    def _conjugate(self, moment: Array) -> Array:
        bent, n = self.quadratic.curvature, self.quadratic.workers
        own, other = self.pair_chances()
        each = np.einsum("ijk,km,iml->jl", bent, moment, bent)
        total = bent.sum(0) @ moment @ bent.sum(0)
        return np.asarray((own * each + other * (total - each)) / n**2)

    def _noise(self, x: Array) -> Array:
        left = self.quadratic.slope - self.quadratic.curvature @ x
        own, other = self.pair_chances()
        each, total = left.T @ left, np.outer(left.sum(0), left.sum(0))
        return np.asarray((own * each + other * (total - each)) / self.quadratic.workers**2)

    def sampled(self, masks: Array) -> tuple[Array, Array]:
        """A and s of rounds, for masks of what each worker keeps."""
        scale = self.quadratic.dims / self.kept / self.quadratic.workers
        bent = np.einsum("kij,ijl->kjl", masks, self.quadratic.curvature)
        return scale * bent, scale * np.einsum("kij,ij->kj", masks, self.quadratic.slope)
