"""Affine maps in which random numbers choose coordinates: exact means and second moments.

z+ = T z + s + U (r * (V z + w)), where r, one number for each row of V, has a mean and a covariance and does
not depend on z. Masks of what workers keep are such numbers, and so are coins.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Masked:
    """T and s are `plain` and `shift`, U is `into`, V and w are `seen` and `seen_shift`."""

    plain: Array
    shift: Array
    into: Array
    seen: Array
    seen_shift: Array
    chance: Array  # E r
    covariance: Array  # of r

    @cached_property
    def mean(self) -> Array:
        """What the mean of z+ multiplies z by."""
        return np.asarray(self.plain + (self.into * self.chance) @ self.seen)

    @cached_property
    def mean_shift(self) -> Array:
        """What the mean of z+ adds."""
        return np.asarray(self.shift + (self.into * self.chance) @ self.seen_shift)

    def conjugate(self, moment: Array) -> Array:
        """E[(T + U r V) S (T + U r V)'] for symmetric S."""
        met = self.seen @ moment @ self.seen.T
        found = self.mean @ moment @ self.mean.T + self._weighed(met)
        return 0.5 * (found + found.T)  # or rounding makes it lopsided, and that part grows

    def spread(self, z: Array) -> Array:
        """The covariance of z+ from a given z: none where all that r chooses from is 0."""
        met = self.seen @ z + self.seen_shift
        return self._weighed(np.outer(met, met))

    def square(self, z: Array) -> Array:
        """E[z+ z+'] from a given z."""
        mean = self.mean @ z + self.mean_shift
        return np.outer(mean, mean) + self.spread(z)

    def _weighed(self, met: Array) -> Array:
        return np.asarray(self.into @ (self.covariance * met) @ self.into.T)
