"""One grid of axes on which the layouts of two meshes can both be written."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

from trainwright.program.layout import Layout, Mesh, build_layout

Axes = tuple[int, ...]
Dims = tuple[tuple[str, int], ...]  # names and sizes of a tensor's dims


class State(NamedTuple):
    """A layout on a grid, written briefly: a tuple, because the search hashes and compares very many."""

    splits: tuple[Axes, ...]  # of each dim, in order
    partial: Axes
    given: tuple[
        tuple[int, ...], ...
    ]  # of each dim, the sizes of its parts where they are not the usual ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Axes that refine those of both meshes; over the `extra` ones only one of the meshes extends."""

    source: Axes  # sizes on each side: 1 for an extra axis on the side that does not have it
    target: Axes
    extra: Axes
    start: State
    goal: State

    def sizes(self) -> Axes:
        """Of every axis, on the side that has it."""
        return tuple(max(pair) for pair in zip(self.source, self.target, strict=True))


def grids(source: Layout, target: Layout, dims: Dims) -> Iterator[Grid]:
    """The grids on which both layouts can be written; none if their axes do not nest.

    Where one mesh has m times the devices of the other, each of the smaller one's stands for m devices of the
    larger one: neighbours, or equally far apart. Each way that needs no more axes than others gives a grid.
    """
    small, large = sorted((source.mesh, target.mesh), key=lambda mesh: len(mesh.devices))
    times, rest = divmod(len(large.devices), len(small.devices))
    if rest:
        return
    if source.mesh.axes == target.mesh.axes:
        at = tuple((axis,) for axis in range(len(source.mesh.axes)))
        yield from _written(source, target, dims, (source.mesh.axes, at, at, ()))
        return
    distances = _distances(small, large) if times > 1 else [len(small.devices)]
    ways = {_placed(source.mesh, target.mesh, apart, times): None for apart in distances}
    placed = [way for way in ways if way]
    fewest = min((len(sizes) for sizes, *_ in placed), default=0)
    for way in placed:
        if len(way[0]) == fewest:
            yield from _written(source, target, dims, way)


Placed = tuple[
    Axes, tuple[Axes, ...], tuple[Axes, ...], Axes
]  # sizes, axes of each mesh on the grid, extra ones


def _bounds(mesh: Mesh) -> list[int]:
    """How many neighbours each axis and those inside it hold, from 1 up."""
    found = [1]
    for size in reversed(mesh.axes):
        found.append(found[-1] * size)
    return found


def _distances(small: Mesh, large: Mesh) -> list[int]:
    """How far apart the devices may lie that stand for one of the smaller mesh."""
    count = len(small.devices)
    return sorted({bound for bound in {*_bounds(small), *_bounds(large), 1, count} if count % bound == 0})


def _placed(source: Mesh, target: Mesh, apart: int, times: int) -> Placed | None:
    """Both meshes on a grid with `times` devices that are `apart` for each of the smaller one's."""
    stretched = []
    for mesh, other in ((source, target), (target, source)):
        smaller = times > 1 and len(mesh.devices) < len(other.devices)
        stretched.append(_stretched(_bounds(mesh), apart, times if smaller else 1))
    cuts = sorted({bound for pairs in stretched for pair in pairs for bound in pair} | {apart, apart * times})
    if any(outer % inner for inner, outer in pairwise(cuts)):
        return None
    pieces = list(pairwise(cuts))[::-1]
    extra = tuple(i for i, (low, high) in enumerate(pieces) if low >= apart and high <= apart * times)
    return (
        tuple(high // low for low, high in pieces),
        _cover(stretched[0], pieces, extra if len(source.devices) < len(target.devices) else ()),
        _cover(stretched[1], pieces, extra if len(target.devices) < len(source.devices) else ()),
        extra,
    )


def _stretched(bounds: list[int], apart: int, times: int) -> list[tuple[int, int]]:
    """Where each axis of a mesh, outer first, begins and ends once `times` devices stand for each."""
    ends = [bound if bound <= apart else bound * times for bound in bounds]
    return list(pairwise(ends))[::-1]


def _cover(pairs: list[tuple[int, int]], pieces: list[tuple[int, int]], without: Axes) -> tuple[Axes, ...]:
    """For each axis of a mesh, the grid's axes that it consists of."""
    return tuple(
        tuple(i for i, (a, b) in enumerate(pieces) if a >= low and b <= high and i not in without)
        for low, high in pairs
    )


def _written(source: Layout, target: Layout, dims: Dims, placed: Placed) -> Iterator[Grid]:
    """The grid with both layouts on it, unless an axis with unequal parts is divided by it."""
    sizes, source_at, target_at, extra = placed
    for layout, at in ((source, source_at), (target, target_at)):
        if any(len(at[layout.axes_of(dim)[0]]) > 1 for dim, _ in layout.sizes):
            return
    smaller = tuple(1 if axis in extra else size for axis, size in enumerate(sizes))
    grows = len(source.mesh.devices) < len(target.mesh.devices)
    shrinks = len(source.mesh.devices) > len(target.mesh.devices)
    yield Grid(
        source=smaller if grows else sizes,
        target=smaller if shrinks else sizes,
        extra=extra,
        start=_state(source, source_at, dims, sizes),
        goal=_state(target, target_at, dims, sizes),
    )


def _state(layout: Layout, at: tuple[Axes, ...], dims: Dims, sizes: Axes) -> State:
    def on_grid(axes: Axes) -> Axes:
        return tuple(axis for own in axes for axis in at[own] if sizes[axis] > 1)

    splits = tuple(on_grid(layout.axes_of(dim)) for dim, _ in dims)
    given = dict(layout.sizes)
    return State(
        splits=splits,
        partial=tuple(sorted(on_grid(layout.partial))),
        given=tuple(
            _unusual(given.get(dim, ()), size) if axes else ()
            for (dim, size), axes in zip(dims, splits, strict=True)
        ),
    )


def _unusual(given: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The sizes of parts, unless they are those that a dim has without saying so."""
    count = len(given)
    usual = tuple((i + 1) * size // count - i * size // count for i in range(count))
    return () if given == usual else given


def build_on(state: State, mesh: Mesh, dims: Dims) -> Layout:
    """The layout that a state means on a mesh with the grid's axes."""
    names = [dim for dim, _ in dims]
    return build_layout(
        mesh,
        dict(zip(names, state.splits, strict=True)),
        state.partial,
        {dim: given for dim, given in zip(names, state.given, strict=True) if given},
    )


def parts(axes: Iterable[int], sizes: Axes) -> int:
    """Into how many parts axes split a dim."""
    return prod(sizes[axis] for axis in axes)


def coarser(grid: Grid, most: int) -> Grid:
    """The grid with neighbouring axes joined that always serve together, outer first, until `most` are left.

    The more axes, the very many more states: what is lost is to treat such axes differently on the way.
    """
    while sum(size > 1 for size in grid.sizes()) > most:
        together = [axis for axis in range(len(grid.sizes()) - 1) if _together(grid, axis)]
        if not together:
            break
        grid = _joined(grid, together[0])
    return grid


def _together(grid: Grid, axis: int) -> bool:
    """Whether an axis and the next one inside it split the same dim in turn, or are both shares or copies."""
    pair = (axis, axis + 1)
    if (axis in grid.extra) != (axis + 1 in grid.extra):
        return False
    for state in (grid.start, grid.goal):
        runs = [pair[0] in axes and pair in pairwise(axes) for axes in state.splits]
        split = any(each in axes for axes in state.splits for each in pair)
        shared = [each in state.partial for each in pair]
        if not any(runs) and (split or shared[0] != shared[1]):
            return False
    return True


def _joined(grid: Grid, axis: int) -> Grid:
    """The grid with an axis and the next as one."""

    def renamed(axes: Axes) -> Axes:
        return tuple(each - (each > axis) for each in axes if each != axis + 1)

    def joined(sizes: Axes) -> Axes:
        return (*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :])

    def moved(state: State) -> State:
        return State(tuple(map(renamed, state.splits)), renamed(state.partial), state.given)

    return Grid(
        source=joined(grid.source),
        target=joined(grid.target),
        extra=renamed(grid.extra),
        start=moved(grid.start),
        goal=moved(grid.goal),
    )
