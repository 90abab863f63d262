"""Design points: the combinations of the axes' values, by number, the last axis fastest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.sweep.constraints import Constraint
from trainwright.sweep.types import Axis, Sweep

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Some design points: their numbers, and for each axis which of its values they have."""

    number: Ints
    chosen: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.number)

    def take(self, where: NDArray[Any]) -> "Points":
        """The points at some indices."""
        return Points(
            number=self.number[where], chosen={name: each[where] for name, each in self.chosen.items()}
        )


def points(sweep: Sweep, start: int = 0, stop: int | None = None) -> Points:
    """The points of a sweep from one number to another that constraints on axes allow."""
    number = np.arange(start, len(sweep) if stop is None else min(stop, len(sweep)), dtype=np.int64)
    chosen: dict[str, Ints] = {}
    rest = number
    for group in reversed(sweep.groups):
        rest, at = np.divmod(rest, len(group[0]))
        chosen |= {axis.name: at for axis in group}
    found = Points(number=number, chosen={axis.name: chosen[axis.name] for axis in sweep.axes})
    allowed = np.ones(len(number), dtype=bool)
    columns = axis_columns(sweep, found)
    for constraint in axis_constraints(sweep):
        allowed &= constraint.holds(columns)
    return found if allowed.all() else found.take(allowed)


def axis_columns(sweep: Sweep, chosen: Points) -> dict[str, NDArray[Any]]:
    """What is written of each axis: numbers in base units, or text."""
    return {axis.name: labels(axis)[chosen.chosen[axis.name]] for axis in sweep.axes}


def labels(axis: Axis) -> NDArray[Any]:
    """The labels of an axis as an array: of whole numbers, numbers, or text."""
    if all(isinstance(each, int) and not isinstance(each, bool) for each in axis.labels):
        return np.array(axis.labels, dtype=np.int64)
    if all(isinstance(each, int | float) and not isinstance(each, bool) for each in axis.labels):
        return np.array(axis.labels, dtype=np.float64)
    return np.array([str(each) for each in axis.labels], dtype=np.str_)


def axis_constraints(sweep: Sweep) -> tuple[Constraint, ...]:
    """Constraints that axes alone decide: what they forbid is no point at all."""
    names = {axis.name for axis in sweep.axes}
    return tuple(each for each in sweep.constraints if each.names <= names)


def result_constraints(sweep: Sweep) -> tuple[Constraint, ...]:
    """Constraints on results: a strategy that breaks one is not chosen."""
    own = axis_constraints(sweep)
    return tuple(each for each in sweep.constraints if each not in own)
