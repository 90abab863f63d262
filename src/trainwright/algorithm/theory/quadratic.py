"""Quadratics of several workers: f_i(x) = x'L_i x/2 - x'b_i, and f their mean."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """`curvature` is L_i, workers by d by d and symmetric; `slope` is b_i, workers by d."""

    curvature: Array
    slope: Array

    def __post_init__(self) -> None:
        workers, dims = self.slope.shape
        if self.curvature.shape != (workers, dims, dims):
            rule = f"has shape {self.curvature.shape} beside slopes of {self.slope.shape}"
            raise BadInput("quadratic", "curvature", rule, "give workers x d x d and workers x d")
        if not np.allclose(self.curvature, self.curvature.transpose(0, 2, 1)):
            raise BadInput("quadratic", "curvature", "is not symmetric", "give (L + L')/2")

    @property
    def workers(self) -> int:
        """How many f_i there are."""
        return len(self.slope)

    @property
    def dims(self) -> int:
        """d."""
        return int(self.slope.shape[1])

    @cached_property
    def mean_curvature(self) -> Array:
        """L."""
        return np.asarray(self.curvature.mean(0))

    @cached_property
    def mean_slope(self) -> Array:
        """b."""
        return np.asarray(self.slope.mean(0))

    @cached_property
    def minimum(self) -> Array:
        """x* = L^-1 b."""
        return np.asarray(np.linalg.solve(self.mean_curvature, self.mean_slope), dtype=np.float64)

    def value(self, x: Array) -> Array:
        """f at one or many points, the last axis being the coordinates."""
        bent = np.einsum("...j,jk,...k->...", x, self.mean_curvature, x)
        return np.asarray(0.5 * bent - x @ self.mean_slope)

    def gradients(self, x: Array) -> Array:
        """The gradient of each f_i at many points: points by workers by d, or of its own at each worker."""
        each = x[..., None, :] if x.ndim < 3 else x
        return np.asarray(np.einsum("ijk,...ik->...ij", self.curvature, each + 0 * self.slope) - self.slope)


def homogeneous(curvature: Array, slope: Array, workers: int) -> Quadratic:
    """The same f_i at every worker."""
    return Quadratic(
        curvature=np.repeat(np.asarray(curvature, float)[None], workers, 0),
        slope=np.repeat(np.asarray(slope, float)[None], workers, 0),
    )


def random_quadratic(
    dims: int, workers: int, seed: int, *, spread: float = 1.0, kind: str = "any"
) -> Quadratic:
    """Well-conditioned random f_i.

    `kind` "same" makes all equal, "meeting" lets them share the minimum (interpolation, b not 0).
    """
    source = np.random.default_rng(seed)
    factors = source.normal(size=(workers, dims, dims)) * np.sqrt(spread / dims)
    curvature = np.eye(dims) + factors @ factors.transpose(0, 2, 1)
    slope = source.normal(size=(workers, dims))
    if kind == "same":
        return homogeneous(curvature[0], slope[0], workers)
    if kind == "meeting":
        slope = curvature @ source.normal(size=dims)
    return Quadratic(curvature=curvature, slope=slope)
