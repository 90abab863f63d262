"""Means of a few seeds with the interval that they are known to."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t, 97.5 %, 1 to 9 degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean and its 95 % confidence interval by Student's t; of one value it is that value alone."""

    mean: float
    low: float
    high: float


def interval(values: Sequence[float]) -> Interval:
    """The interval of values of independent seeds."""
    middle = mean(values)
    if len(values) < 2:
        return Interval(mean=middle, low=middle, high=middle)
    half = _T[min(len(values) - 2, len(_T) - 1)] * stdev(values) / sqrt(len(values))
    return Interval(mean=middle, low=middle - half, high=middle + half)
