"""What each kind of move costs between the devices of one grid, found once and remembered."""

from dataclasses import dataclass, field

import numpy as np

from trainwright.cost.collective import is_straight
from trainwright.program.grid import Axes
from trainwright.program.moves import origins
from trainwright.program.network import (
    Devices,
    Line,
    Network,
    Shape,
    all_reduce_seconds,
    collective_lines,
    collective_seconds,
    line_seconds,
    messages_lines,
    spans,
)

Splits = tuple[Axes, ...]  # of each dim, the axes that split it


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Seconds of moves over the axes of a grid; the fields with an underscore remember earlier answers."""

    network: Network
    grids: tuple[Devices, Devices]  # devices of source and target, each shaped as its axes
    _lines: dict[tuple[object, ...], tuple[Line, ...]] = field(default_factory=dict)
    _sums: dict[tuple[int, Axes, float], float] = field(default_factory=dict)
    _shapes: dict[tuple[int, Axes], tuple[Shape, ...]] = field(default_factory=dict)

    def within(self, kind: str, side: int, axes: Axes, size_bytes: float) -> float:
        """A collective among the devices of one side: 0 the source's, 1 the target's."""
        if kind == "all_reduce":
            return self._sum(side, axes, size_bytes)
        if not is_straight(self.network.links):
            return collective_seconds(self.network, kind, self._where(side, axes), size_bytes)
        lines = self._lines.get((kind, side, axes))
        if lines is None:
            lines = collective_lines(self.network, kind, self._where(side, axes))
            self._lines[kind, side, axes] = lines
        seconds = line_seconds(lines, size_bytes)
        # A scatter may be an all-reduce that drops the rest.
        return min(seconds, self._sum(side, axes, size_bytes)) if kind == "reduce_scatter" else seconds

    def _sum(self, side: int, axes: Axes, size_bytes: float) -> float:
        found = self._sums.get((side, axes, size_bytes))
        if found is None:
            found = all_reduce_seconds(self.network, self._where(side, axes), size_bytes)
            self._sums[side, axes, size_bytes] = found
        return found

    def _where(self, side: int, axes: Axes) -> tuple[Shape, ...]:
        """How the groups along axes lie on the levels."""
        found = self._shapes.get((side, axes))
        if found is None:
            found = self._shapes[side, axes] = spans(self.network.links, _groups(self.grids[side], axes))
        return found

    def across(self, kind: str, extra: Axes, spread: Axes, size_bytes: float) -> float:
        """A move from source to target: of `size_bytes` in all to, or from, each device of the smaller side.

        `extra` are the axes over which only one side extends, `spread` those along which its devices do not
        hold the same. The messages of a scatter or gather follow each other on the one device's link. A
        broadcast or reduce passes every byte once over each link of a ring, and over the one device's.
        """
        lines = self._lines.get((kind, extra, spread))
        if lines is None:
            lines = self._lines[kind, extra, spread] = self._across(kind, extra, spread)
        return line_seconds(lines, size_bytes)

    def _across(self, kind: str, extra: Axes, spread: Axes) -> tuple[Line, ...]:
        source, target = self.grids
        for axis in set(extra) - set(spread):
            source = source.take([0], axis=axis)
        senders, receivers = _groups(source, extra), _groups(target, extra)
        if kind in ("send", "scatter", "gather"):
            count = max(senders.shape[1], receivers.shape[1])
            lines = messages_lines(self.network, *np.broadcast_arrays(senders, receivers))
            return tuple((fixed, slope / count) for fixed, slope in lines)
        one, many = (senders, receivers) if kind == "broadcast" else (receivers, senders)
        return _first_hop(self.network, one, many) + _ring(self.network, one, many)

    def permute(self, side: int, before: Splits, after: Splits, size_bytes: float) -> float:
        """Each device's part to the one device that wants it."""
        lines = self._lines.get((side, before, after))
        if lines is None:
            devices = self.grids[side].reshape(-1, 1)
            senders = devices[origins(self.grids[side].shape, before, after)]
            lines = self._lines[side, before, after] = messages_lines(self.network, senders, devices)
        return line_seconds(lines, size_bytes)


def _groups(grid: Devices, axes: Axes) -> Devices:
    """The groups of devices along axes, one in each row."""
    count = int(np.prod([grid.shape[axis] for axis in axes]))
    last = range(grid.ndim - len(axes), grid.ndim)
    return np.moveaxis(grid, axes, tuple(last)).reshape(-1, count)


def _first_hop(network: Network, one: Devices, many: Devices) -> tuple[Line, ...]:
    """The message that leaves the one device, to the nearest of the others."""
    apart = np.abs(many - one)
    nearest = np.where(apart == 0, np.iinfo(np.int64).max, apart).argmin(axis=1)
    return messages_lines(network, one, np.take_along_axis(many, nearest[:, None], axis=1))


def _ring(network: Network, one: Devices, many: Devices) -> tuple[Line, ...]:
    joined = np.concatenate([one, many], axis=1)
    together = [np.unique(row) for row in joined]
    found: set[Line] = set()
    for size in sorted({len(row) for row in together}):
        rows = np.array([row for row in together if len(row) == size])
        lines = collective_lines(network, "all_gather", spans(network.links, rows))
        found |= {(fixed, slope * size / (size - 1)) for fixed, slope in lines}
    return tuple(sorted(found))
