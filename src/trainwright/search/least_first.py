"""What may be worth a look, by a lower bound of its score: the most promising first."""

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.types import Array

Ints = NDArray[np.int64]
_FIRST = 1 << 13  # of the first wave; each wave is as many times larger than the one before it:
_GROWTH = 4


class LeastFirst:
    """Hands out rows in waves, by their least scores, until a limit that may fall in between."""

    def __init__(self, least: Array) -> None:
        self._least = least
        self._left: Ints = np.arange(len(least))
        self._size = _FIRST

    def next(self, limit: float) -> Ints:
        """The next rows whose least score is within the limit, in their order; none if all others are not."""
        left = self._left[self._least[self._left] <= limit]
        if len(left) <= self._size:
            self._left = left[:0]
            return left
        parts = np.argpartition(self._least[left], self._size)
        self._left = np.sort(left[parts[self._size :]])
        taken = np.sort(left[parts[: self._size]])
        self._size *= _GROWTH
        return taken
