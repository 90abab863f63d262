"""Subnetworks: which units each worker holds in a round, and where their weights lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import floor, prod

import numpy as np
from numpy.typing import NDArray

from trainwright.algorithm.anatomy import Anatomy, Weight

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How units are divided: every worker holds a window of each group's units in a random order.

    The windows start evenly spaced and are as long as `coverage` says, or as it takes to hold every unit
    once; so every worker holds a uniform random subset, and every unit has the same count of holders, give or
    take one.
    """

    anatomy: Anatomy
    workers: int
    coverage: float = 0.0  # share of every group; 0: disjoint

    def window(self, group: str, rank: int) -> tuple[int, int]:
        """The first place and the length of a worker's window."""
        units = self.anatomy.units[group]
        first, last = (floor(each * units / self.workers) for each in (rank, rank + 1))
        return first, min(max(last - first, round(self.coverage * units), 1), units)

    def counts(self, rank: int) -> Mapping[str, int]:
        """How many units of each group a worker holds."""
        return {group: self.window(group, rank)[1] for group in self.anatomy.units}

    def share(self, group: str) -> float:
        """The mean share of a group's units that a worker holds."""
        held = sum(self.window(group, rank)[1] for rank in range(self.workers))
        return held / self.workers / self.anatomy.units[group]

    @property
    def whole(self) -> bool:
        """Whether every worker holds all units."""
        return all(self.share(group) == 1.0 for group in self.anatomy.units)

    def elements(self, rank: int) -> float:
        """Numbers of divided weights that a worker holds; exact if residual blocks are alike."""
        held = self.counts(rank)
        return sum(_held_elements(self.anatomy, each, held) for each in self.anatomy.partitioned)

    @property
    def mean_elements(self) -> float:
        """The mean of them over the workers."""
        return sum(self.elements(rank) for rank in range(self.workers)) / self.workers

    def draw(self, number: int, seed: int) -> "tuple[Mapping[str, Indices], ...]":
        """The units of every worker in a round, in ascending order; every round has its own."""
        orders = {
            group: np.random.default_rng([seed, number, place]).permutation(units)
            for place, (group, units) in enumerate(self.anatomy.units.items())
        }
        return tuple(
            {group: self._chosen(group, order, rank) for group, order in orders.items()}
            for rank in range(self.workers)
        )

    def _chosen(self, group: str, order: Indices, rank: int) -> Indices:
        first, length = self.window(group, rank)
        return np.sort(np.take(order, np.arange(first, first + length), mode="wrap"))


def _held_elements(anatomy: Anatomy, weight: Weight, held: Mapping[str, int]) -> float:
    if weight.block:
        return weight.elements * held[weight.block[0]] / anatomy.units[weight.block[0]]
    return prod(
        held[axis.group] * axis.width if axis else size
        for axis, size in zip(weight.axes, weight.sizes, strict=True)
    )


def held_sizes(weight: Weight, chosen: Mapping[str, Indices]) -> tuple[int, ...] | None:
    """The sizes of a weight in a subnetwork; none if it is not in it."""
    if weight.block:
        group, unit = weight.block
        return weight.sizes if unit in chosen[group] else None
    axes = weight.axes or (None,) * len(weight.sizes)
    return tuple(
        len(chosen[axis.group]) * axis.width if axis else size
        for axis, size in zip(axes, weight.sizes, strict=True)
    )


def places(weight: Weight, chosen: Mapping[str, Indices]) -> Indices:
    """Where the numbers of a weight that a subnetwork has lie in the whole weight, flat and ascending."""
    found = np.zeros(1, dtype=np.int64)
    if held_sizes(weight, chosen) is None:
        return found[:0]
    for axis, size in zip(weight.axes or (None,) * len(weight.sizes), weight.sizes, strict=True):
        along = np.arange(size) if axis is None else _entries(chosen[axis.group], axis.width)
        found = (found[:, None] * size + along[None, :]).ravel()
    return found


def _entries(units: Indices, width: int) -> Indices:
    return (units[:, None] * width + np.arange(width)[None, :]).ravel()


def flat_places(weights: Sequence[Weight], chosen: Mapping[str, Indices], low: int, high: int) -> Indices:
    """Where a subnetwork's numbers lie, within a range of all weights one after another; ascending."""
    listed = []
    for weight, start in zip(weights, starts(weights), strict=False):
        if start < high and start + weight.elements > low:
            found = places(weight, chosen) + start
            listed.append(found[np.searchsorted(found, low) : np.searchsorted(found, high)])
    return np.concatenate(listed) if listed else np.zeros(0, dtype=np.int64)


def starts(weights: Sequence[Weight]) -> tuple[int, ...]:
    """Where each weight starts if they lie one after another, and where the last one ends."""
    return tuple(accumulate((weight.elements for weight in weights), initial=0))


def home_range(elements: int, rank: int, workers: int) -> tuple[int, int]:
    """The part of all divided weights that a worker keeps between rounds."""
    size = -(-elements // workers)
    return min(rank * size, elements), min((rank + 1) * size, elements)
