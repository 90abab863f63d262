"""Linear random recursions x+ = (I - c A) x + c s: their mean, rate, covariance and largest stable step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput

Array = NDArray[np.float64]
_BISECTIONS = 60


@dataclass(frozen=True, kw_only=True)
class Recursion:
    """What is known of the random A (d by d) and s (d): means, and second moments as functions.

    `conjugate(S)` is E[A S A'] for symmetric S; `noise(x)` is E[(s - A x)(s - A x)'].
    """

    mean: Array
    mean_slope: Array
    conjugate: Callable[[Array], Array]
    noise: Callable[[Array], Array]

    @property
    def dims(self) -> int:
        """d."""
        return len(self.mean)

    def fixed_point(self) -> Array:
        """Where the mean of x converges to; it does not depend on the step size."""
        return np.asarray(np.linalg.solve(self.mean, self.mean_slope), dtype=np.float64)

    def rate(self, step: float) -> float:
        """What the distance of the mean from its limit is multiplied by in a step, in the long run."""
        return float(np.abs(np.linalg.eigvals(np.eye(self.dims) - step * self.mean)).max())

    def operator(self, step: float) -> Array:
        """K: the second moment of a deviation after a step, as a matrix of the one before, on symmetric S."""
        rows, columns = np.tril_indices(self.dims)
        found = np.empty((len(rows), len(rows)))
        for place, (i, j) in enumerate(zip(rows, columns, strict=True)):
            unit = np.zeros((self.dims, self.dims))
            unit[i, j] = unit[j, i] = 1.0
            found[:, place] = self.moved(unit, step)[rows, columns]
        return found

    def moved(self, moment: Array, step: float) -> Array:
        """E[(I - cA) S (I - cA)']."""
        drift = self.mean @ moment
        found = moment - step * (drift + drift.T) + step**2 * self.conjugate(moment)
        return 0.5 * (found + found.T)  # or rounding makes it lopsided, and that part grows

    def square_rate(self, step: float) -> float:
        """The spectral radius of K: below 1 the variance stays bounded."""
        return float(np.abs(np.linalg.eigvals(self.operator(step))).max())

    def covariance(self, step: float) -> Array:
        """The stationary covariance S = K S + c^2 Q at a stable step; it is O(c)."""
        if not self.square_rate(step) < 1.0:
            raise BadInput("step size", step, "is not stable in the mean square", "use a smaller one")
        rows, columns = np.tril_indices(self.dims)
        source = step**2 * self.noise(self.fixed_point())[rows, columns]
        solved = np.linalg.solve(np.eye(len(rows)) - self.operator(step), source)
        found = np.zeros((self.dims, self.dims))
        found[rows, columns] = solved
        return found + np.tril(found, -1).T

    def largest_step(self) -> float:
        """The step below which the recursion is stable in the mean square; at most 2/max eig of the mean."""
        low, high = 0.0, 2.0 / float(np.linalg.eigvals(self.mean).real.max())
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.square_rate(middle) < 1.0 else (low, middle)
        return low
