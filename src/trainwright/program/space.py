"""All that the search for moves knows of one conversion."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trainwright.program.grid import Axes, Dims, Grid, State, parts
from trainwright.program.layout import Mesh
from trainwright.program.prices import Prices


class Node(NamedTuple):
    """A state on one side: 0 the source's mesh, 1 the target's."""

    side: int
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All states of one conversion: the tensor, the grid, prices; with what is asked of it again and again.

    `used` are the dims that may be split on the way: those of source and target, and one more that the axes
    divide. `kept` counts, for each dim, the outer axes that source and target share: they stay.
    """

    dims: Dims
    element_bytes: float
    grid: Grid
    sizes: Axes
    meshes: tuple[Mesh, Mesh]
    prices: Prices
    across: bool
    used: tuple[int, ...]
    kept: tuple[int, ...]
    _bytes: dict[object, float] = field(default_factory=dict)
    _appended: dict[object, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def own_bytes(self, state: State) -> float:
        """What the device with most of it holds."""
        key = (state.splits, state.given)
        found = self._bytes.get(key)
        if found is None:
            found = self.element_bytes
            for (_, size), axes, given in zip(self.dims, state.splits, state.given, strict=True):
                found *= max(given) if given else -(-size // parts(axes, self.sizes))
            self._bytes[key] = found
        return found

    def copies(self, node: Node) -> Axes:
        """The axes along which devices of the node's side hold the same."""
        used = set(node.state.partial).union(*node.state.splits)
        sizes = self.grid.target if node.side else self.grid.source
        return tuple(axis for axis, size in enumerate(sizes) if size > 1 and axis not in used)

    def appended(self, dim: int, state: State, axes: Axes) -> tuple[tuple[int, ...], ...]:
        """The ways to split a dim further: the unequal sizes of each, () for the usual ones."""
        key = (dim, state.splits[dim], state.given[dim], axes)
        found = self._appended.get(key)
        if found is None:
            found = self._appended[key] = tuple(self._ways(dim, state, axes))
        return found

    def _ways(self, dim: int, state: State, axes: Axes) -> Iterator[tuple[int, ...]]:
        if state.given[dim] or dim not in self.used:
            return
        after = state.splits[dim] + axes
        ends = (self.grid.start, self.grid.goal)
        known = any(end.splits[dim][: len(after)] == after for end in ends)
        if known or self.dims[dim][1] % parts(after, self.sizes) == 0:
            yield ()
        yield from sorted({end.given[dim] for end in ends if end.splits[dim] == after and end.given[dim]})


def build_space(
    dims: Dims, element_bytes: float, grid: Grid, meshes: tuple[Mesh, Mesh], prices: Prices
) -> Space:
    """What the search needs to know of one conversion."""
    sizes = grid.sizes()
    pairs = list(zip(grid.start.splits, grid.goal.splits, strict=True))
    needed = {index for index, (one, other) in enumerate(pairs) if one or other}
    spare = sorted(
        set(range(len(dims))) - needed, key=lambda dim: -sum(dims[dim][1] % size == 0 for size in sizes)
    )
    return Space(
        dims=dims,
        element_bytes=element_bytes,
        grid=grid,
        sizes=sizes,
        meshes=meshes,
        prices=prices,
        across=meshes[0].devices != meshes[1].devices,
        used=tuple(sorted(needed | set(spare[:1]))),
        kept=tuple(
            _common(grid, dim) if grid.start.given[dim] == grid.goal.given[dim] else 0
            for dim in range(len(dims))
        ),
    )


def _common(grid: Grid, dim: int) -> int:
    """How many outer axes of a dim are the same before and after."""
    count = 0
    for one, other in zip(grid.start.splits[dim], grid.goal.splits[dim], strict=False):
        if one != other:
            break
        count += 1
    return count
