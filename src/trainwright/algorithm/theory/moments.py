"""Linear random recursions: where they go, how fast, how far they scatter, and their largest stable step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.theory.growth import growth
from trainwright.errors import BadInput

Array = NDArray[np.float64]
_EXACT = 1e-12  # rates that differ by less are the same
_MOST_TRIALS = 60


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round at one step size, z+ = T z + s with random T and s.

    `mean` is E T; `moved(S)` is E[T S T'], the second moment of a deviation that had the symmetric S before;
    `noise` is the covariance of z+ from the fixed point of the mean.
    """

    step: float
    fixed_point: Array
    mean: Array
    moved: Callable[[Array], Array]
    noise: Array

    @property
    def dims(self) -> int:
        """How many numbers z has."""
        return len(self.mean)

    def rate(self) -> float:
        """What the distance of the mean from its limit is multiplied by in a round, in the long run."""
        return float(np.abs(np.linalg.eigvals(self.mean)).max())

    def square_rate(self) -> float:
        """What E|z - z*|^2 is multiplied by in the long run: below 1 the variance stays bounded."""
        return growth(self.moved, self.dims)

    def operator(self) -> Array:
        """`moved` as a matrix, on the lower triangles of symmetric matrices."""
        rows, columns = np.tril_indices(self.dims)
        found = np.empty((len(rows), len(rows)))
        for place, (i, j) in enumerate(zip(rows, columns, strict=True)):
            unit = np.zeros((self.dims, self.dims))
            unit[i, j] = unit[j, i] = 1.0
            found[:, place] = self.moved(unit)[rows, columns]
        return found

    def covariance(self) -> Array:
        """The stationary covariance S = moved(S) + noise of a stable step."""
        if not self.square_rate() < 1.0:
            raise BadInput("step size", self.step, "is not stable in the mean square", "use a smaller one")
        rows, columns = np.tril_indices(self.dims)
        solved = np.linalg.solve(np.eye(len(rows)) - self.operator(), self.noise[rows, columns])
        found = np.zeros((self.dims, self.dims))
        found[rows, columns] = solved
        return found + np.tril(found, -1).T


@dataclass(frozen=True, kw_only=True)
class Recursion:
    """x+ = (I - c A) x + c s: what is known of the random A (d by d) and s (d), whatever the step c is.

    `mean` and `mean_slope` are E A and E s; `conjugate(S)` is E[A S A'] for symmetric S; `noise(x)` is
    E[(s - A x)(s - A x)'].
    """

    mean: Array
    mean_slope: Array
    conjugate: Callable[[Array], Array]
    noise: Callable[[Array], Array]

    def fixed_point(self) -> Array:
        """Where the mean of x converges to; it does not depend on the step size."""
        return np.asarray(np.linalg.solve(self.mean, self.mean_slope), dtype=np.float64)

    def at(self, step: float) -> Round:
        """A round; its noise is O(c^2), so its stationary covariance is O(c)."""
        x = self.fixed_point()

        def moved(moment: Array) -> Array:
            drift = self.mean @ moment
            found = moment - step * (drift + drift.T) + step**2 * self.conjugate(moment)
            return 0.5 * (found + found.T)  # or rounding makes it lopsided, and that part grows

        return Round(
            step=step, fixed_point=x, mean=np.eye(len(x)) - step * self.mean, moved=moved,
            noise=step**2 * self.noise(x),
        )  # fmt: skip

    def largest_step(self) -> float:
        """The step below which the recursion is stable in the mean square; at most 2/max eig of the mean."""
        return largest_step(self.at, 2.0 / float(np.linalg.eigvals(self.mean).real.max()))


def largest_step(at: Callable[[float], Round], most: float) -> float:
    """The step below which rounds are stable in the mean square; beyond `most` not even their mean is.

    `most` is halved until a step is stable; between that and the one before, the rate passes 1. 0 if none is.
    """

    def excess(step: float) -> float:
        return at(step).square_rate() - 1.0

    high, above = most, excess(most)
    if above < _EXACT:
        return most
    for _ in range(_MOST_TRIALS):
        low, below = 0.5 * high, excess(0.5 * high)
        if below < -_EXACT:
            return _crossing(excess, (low, below), (high, above))
        high, above = low, below
    return 0.0


def _crossing(excess: Callable[[float], float], low: tuple[float, float], high: tuple[float, float]) -> float:
    """Where a function passes 0, from places beside it and values there, by false position (Illinois)."""
    before = 0.0
    for _ in range(_MOST_TRIALS):
        place = (low[0] * high[1] - high[0] * low[1]) / (high[1] - low[1])
        value = excess(place)
        if abs(value) < _EXACT:
            return place
        # An end that stays twice counts half, or it would stay for ever where the function bends.
        halved = 0.5 if value * before > 0.0 else 1.0
        if value < 0.0:
            low, high = (place, value), (high[0], halved * high[1])
        else:
            low, high = (low[0], halved * low[1]), (place, value)
        before = value
    return low[0]
