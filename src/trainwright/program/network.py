"""What moving bytes between given devices costs on the levels of a network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainwright.cost.collective import (
    Link,
    Span,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    is_straight,
    reduce_scatter_s,
    send_s,
    span,
)
from trainwright.plan.mapping import Sizes, positions

Devices = NDArray[np.int64]
Line = tuple[float, float]  # seconds of no bytes, and seconds a byte
_MANY = 1e9  # bytes: enough to tell the slope of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The levels that join devices, inner to outer; devices are numbered along the innermost first, unless a
    plan maps them otherwise.
    """

    links: tuple[Link, ...]
    mapping: Sizes = ()

    def places(self, devices: Devices) -> Devices:
        """Where devices stand."""
        return np.asarray(positions(self.mapping)[devices]) if self.mapping else devices

    def seconds(self, kind: str, groups: ArrayLike, size_bytes: float) -> float:
        """Time of one collective that runs in all of these groups of devices at once: that of the slowest.

        `size_bytes` counts as the functions of `cost.collective` count: what a member holds before an
        all-reduce, reduce-scatter or all-to-all, what it holds after an all-gather.
        """
        found = spans(self.links, self.places(np.atleast_2d(np.asarray(groups, dtype=np.int64))))
        if kind == "all_reduce":
            return all_reduce_seconds(self, found, size_bytes)
        return collective_seconds(self, kind, found, size_bytes)


Shape = tuple[float, ...]  # of a group: its size, and how many members share one group of each level


def spans(links: tuple[Link, ...], groups: Devices) -> tuple[Shape, ...]:
    """The different ways in which groups lie on the levels, each once.

    Groups whose members are equally far apart are seen as `span` sees them, wherever they start. Of others
    the members are counted where most of them share a group of the level.
    """
    if groups.shape[1] == 1:
        return (_regular(links, 1, 1),)
    groups = np.sort(groups, axis=1)
    steps = np.diff(groups, axis=1)
    regular = (steps == steps[:, :1]).all(axis=1)
    found = {_regular(links, groups.shape[1], int(step)) for step in set(steps[regular, 0].tolist())}
    return tuple(sorted(found | _irregular(links, groups[~regular])))


def _regular(links: tuple[Link, ...], size: int, stride: int) -> Shape:
    where = span(links, np.full(1, float(size)), np.full(1, float(stride)))
    return (float(size), *(float(b[0] * f[0]) for b, f in zip(where.below, where.fan, strict=True)))


def _irregular(links: tuple[Link, ...], groups: Devices) -> set[Shape]:
    if not groups.size:
        return set()
    columns = [np.full(len(groups), float(groups.shape[1]))]
    columns += [_most_together(groups // link.inside).astype(float) for link in links[:-1]]
    columns.append(columns[0])
    return {tuple(row) for row in np.stack(columns, axis=1).tolist()}


def _most_together(places: Devices) -> Devices:
    """Of each row, how often its most frequent value occurs; values do not decrease along a row."""
    most = np.ones(len(places), dtype=np.int64)
    together = np.ones(len(places), dtype=np.int64)
    for column in range(1, places.shape[1]):
        together = np.where(places[:, column] == places[:, column - 1], together + 1, 1)
        np.maximum(most, together, out=most)
    return most


def as_span(shapes: Sequence[Shape]) -> Span:
    """Groups of these shapes as the costs of collectives take them."""
    size, *members = (np.array(column) for column in zip(*shapes, strict=True))
    inner = np.ones(len(shapes))
    below, fan = [], []
    for each in members:
        below.append(inner)
        fan.append(each / inner)
        inner = np.maximum(each, inner)
    return Span(size=size, below=tuple(below), fan=tuple(fan))


@lru_cache(maxsize=65536)
def all_reduce_seconds(network: Network, shapes: tuple[Shape, ...], size_bytes: float) -> float:
    """Time of an all-reduce in the slowest of these groups."""
    return float(all_reduce_s(network.links, as_span(shapes), np.full(len(shapes), size_bytes)).max())


_COLLECTIVES: dict[str, Callable[..., NDArray[np.float64]]] = {
    "all_gather": all_gather_s,
    "reduce_scatter": all_gather_s,
    "all_to_all": all_to_all_s,
}


@lru_cache(maxsize=4096)
def collective_lines(network: Network, kind: str, shapes: tuple[Shape, ...]) -> tuple[Line, ...]:
    """The time of a collective as lines over its bytes, one for each shape of its groups."""
    where, cost = as_span(shapes), _COLLECTIVES[kind]
    fixed = cost(network.links, where, np.zeros(len(shapes)))
    much = cost(network.links, where, np.full(len(shapes), _MANY))
    return tuple(zip(fixed.tolist(), ((much - fixed) / _MANY).tolist(), strict=True))


def collective_seconds(network: Network, kind: str, shapes: tuple[Shape, ...], size_bytes: float) -> float:
    """Time of a collective in the slowest group; a scatter may be an all-reduce that drops the rest."""
    if not is_straight(network.links):
        cost = reduce_scatter_s if kind == "reduce_scatter" else _COLLECTIVES[kind]
        return float(cost(network.links, as_span(shapes), np.full(len(shapes), size_bytes)).max())
    seconds = line_seconds(collective_lines(network, kind, shapes), size_bytes)
    return (
        min(seconds, all_reduce_seconds(network, shapes, size_bytes)) if kind == "reduce_scatter" else seconds
    )


def line_seconds(lines: tuple[Line, ...], size_bytes: float) -> float:
    """The slowest of these at a number of bytes."""
    if len(lines) == 1:  # as good as always, and asked very often
        return lines[0][0] + lines[0][1] * size_bytes
    return max(fixed_s + slope * size_bytes for fixed_s, slope in lines)


@lru_cache(maxsize=1024)
def send_lines(network: Network) -> tuple[Line, ...]:
    """The time of one message: to the device itself, then over each level."""
    found = [(0.0, 0.0)]
    nearest = 1
    for link in network.links:
        distance = np.full(1, float(nearest))
        fixed = float(send_s(network.links, distance, np.zeros(1))[0])
        much = float(send_s(network.links, distance, np.full(1, _MANY))[0])
        found.append((fixed, (much - fixed) / _MANY))
        nearest = max(link.inside, nearest)
    return tuple(found)


def levels_between(network: Network, one: Devices, other: Devices) -> Devices:
    """The level that joins each pair of places, counted from 1; 0 for the same.

    Neighbours may stand on both sides of a border.
    """
    insides = (1, *(link.inside for link in network.links[:-1]))
    apart = [one // inside != other // inside for inside in insides]
    return np.asarray(np.sum(np.broadcast_arrays(*apart), axis=0), dtype=np.int64)


def messages_lines(network: Network, senders: Devices, receivers: Devices) -> tuple[Line, ...]:
    """The time of messages of equal size as lines over that size; the messages of a row follow each other."""
    levels = levels_between(network, senders, receivers)
    counts = np.stack([(levels == level).sum(axis=1) for level in range(len(network.links) + 1)], axis=1)
    number = counts @ (levels.shape[1] + 1) ** np.arange(counts.shape[1])  # one for each different row
    distinct = counts[np.unique(number, return_index=True)[1]]
    return tuple(map(tuple, (distinct @ np.array(send_lines(network))).tolist()))
