"""Compressed gradient descent on quadratics with random subsets of coordinates: exact moments.

x+ = x - c mean C_i (L_i x - b_i), where C_i keeps K coordinates at random, times d/K (Rand-K, workers
apart), or the part of a common random order that is the worker's, times n (Perm-K).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.kept import Kept
from trainwright.algorithm.theory.masked import Masked
from trainwright.algorithm.theory.moments import Recursion
from trainwright.algorithm.theory.quadratic import Quadratic

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class CompressedDescent:
    """Rand-K with `kept` coordinates, or Perm-K, which keeps d/n."""

    quadratic: Quadratic
    kept: int
    kind: Literal["rand", "perm"] = "rand"

    def __post_init__(self) -> None:
        _ = self.sketch  # which refuses what it cannot keep

    @cached_property
    def sketch(self) -> Kept:
        """What each worker keeps of its gradient."""
        q = self.quadratic
        return Kept(dims=q.dims, workers=q.workers, kept=self.kept, kind=self.kind)

    def recursion(self) -> Recursion:
        """Its mean is gradient descent's, so it goes to x*; its noise vanishes if all gradients do there."""
        sent = self._sent()
        return Recursion(
            mean=self.quadratic.mean_curvature, mean_slope=self.quadratic.mean_slope,
            conjugate=sent.conjugate, noise=sent.square,
        )  # fmt: skip

    def _sent(self) -> Masked:
        """A x - s: the mean of all compressed gradients at x."""
        q, d, n = self.quadratic, self.quadratic.dims, self.quadratic.workers
        return Masked(
            plain=np.zeros((d, d)), shift=np.zeros(d), into=self.sketch.factor * np.tile(np.eye(d), n),
            seen=q.curvature.reshape(n * d, d), seen_shift=-q.slope.ravel(),
            chance=np.full(n * d, self.sketch.share), covariance=self.sketch.covariance(),
        )  # fmt: skip

    def sampled(self, masks: Array) -> tuple[Array, Array]:
        """A and s of rounds, for masks of what each worker keeps."""
        bent = np.einsum("kij,ijl->kjl", masks, self.quadratic.curvature)
        slopes = np.einsum("kij,ij->kj", masks, self.quadratic.slope)
        return self.sketch.factor * bent, self.sketch.factor * slopes
