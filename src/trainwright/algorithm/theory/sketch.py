"""Random subsets of coordinates, one for each worker, and the exact moments of their indicators.

Worker i holds the coordinates at the places of a window of a uniform random order. Windows start d/n apart
and are m long, so for m = d/n they are disjoint (Perm-q), and every worker's subset is uniform whatever m is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import comb, perm

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Windows of `held` coordinates of `dims`, for `workers` whose count divides `dims`."""

    dims: int
    workers: int
    held: int

    def __post_init__(self) -> None:
        if self.dims % self.workers:
            raise BadInput("sketch", self.dims, f"does not divide by {self.workers} workers", "change one")
        if not self.dims // self.workers <= self.held <= self.dims:
            rule = f"is not between d/n = {self.dims // self.workers} and d = {self.dims}"
            raise BadInput("sketch's coordinates per worker", self.held, rule, "correct it")

    @property
    def mixing(self) -> float:
        """a = (m - 1)/(d - 1): the chance that a held coordinate has another given one beside it."""
        return (self.held - 1) / (self.dims - 1) if self.dims > 1 else 1.0

    @property
    def share(self) -> float:
        """The chance that a worker holds a coordinate."""
        return self.held / self.dims

    def places(self, worker: int) -> NDArray[np.int64]:
        """Which places of the order a worker's window has."""
        first = worker * self.dims // self.workers
        return np.arange(first, first + self.held) % self.dims

    def masks(self, orders: NDArray[np.int64]) -> Array:
        """Whether each worker holds each coordinate: orders by workers by d, zeros and ones."""
        found = np.zeros((len(orders), self.workers, self.dims))
        for worker in range(self.workers):
            np.put_along_axis(found[:, worker], orders[:, self.places(worker)], 1.0, axis=1)
        return found

    def draw(self, count: int, source: np.random.Generator) -> Array:
        """Masks of so many independent rounds."""
        orders = np.argsort(source.random((count, self.dims)), axis=1)
        return self.masks(orders)

    def every(self) -> Array:
        """Masks of all orders there are; for small d."""
        return self.masks(np.array(list(permutations(range(self.dims)))))

    @cached_property
    def overlaps(self) -> NDArray[np.int64]:
        """How many places two workers share."""
        sets = [set(self.places(worker).tolist()) for worker in range(self.workers)]
        return np.array([[len(one & other) for other in sets] for one in sets])

    def chance(self, mine: int, theirs: int, both: int, overlap: int) -> float:
        """The probability that distinct coordinates are held: `mine` by one worker, `theirs` by another,
        `both` by the two of them, whose windows share `overlap` places."""
        ways = sum(self._ways(mine, theirs, both, overlap))
        return ways / perm(self.dims, mine + theirs + both)

    def _ways(self, mine: int, theirs: int, both: int, overlap: int) -> Iterator[int]:
        """Placements, by how many of `mine` lie where the windows overlap."""
        alone, left = self.held - overlap, overlap - both
        if left < 0:
            return
        for inside in range(mine + 1):
            if inside <= left and mine - inside <= alone and self.held - both - inside >= theirs:
                chosen = comb(mine, inside) * perm(left, inside) * perm(alone, mine - inside)
                yield perm(overlap, both) * chosen * perm(self.held - both - inside, theirs)
