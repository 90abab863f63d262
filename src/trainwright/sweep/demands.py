"""What is demanded of strategies beyond fitting: constraints on results, which may name axes too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.plan.strategy import CHOICES
from trainwright.sweep.columns import Pairs, result_arrays
from trainwright.sweep.constraints import Columns, Constraint

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Constraints on results, and the axes' columns of the points that are asked about."""

    constraints: Sequence[Constraint]
    axes: Columns

    @property
    def names(self) -> frozenset[str]:
        """The columns that they ask for."""
        return frozenset[str]().union(*(each.names for each in self.constraints))

    def take(self, where: Ints) -> "Demands":
        """Those of the points at some indices."""
        return replace(self, axes={name: each[where] for name, each in self.axes.items()})

    def allow(self, pairs: Pairs) -> Flags:
        """Which pairs meet all constraints; a pair for each point."""
        columns = {**result_arrays(pairs, self.names), **self.axes}
        for knob in CHOICES.keys() & columns.keys():
            columns[knob] = np.array(CHOICES[knob])[columns[knob]]
        kept = np.ones(len(pairs.strategies), dtype=bool)
        for each in self.constraints:
            kept &= each.holds(columns)
        return kept
