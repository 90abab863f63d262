"""Where a tensor lies: which part of it, or which share of its value, each device of a mesh holds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

Region = dict[str, tuple[int, int]]  # of each dim, from and to


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Devices in order, seen as a grid: the last axis counts fastest."""

    devices: tuple[int, ...]
    axes: tuple[int, ...]  # sizes, outer first

    def __post_init__(self) -> None:
        assert prod(self.axes) == len(self.devices), f"{self.axes} does not hold {len(self.devices)} devices"

    def __hash__(self) -> int:
        # Meshes of thousands of devices are looked up thousands of times.
        return hash((self.axes, self.devices[0], self.devices[-1]))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Where the device at position `rank` stands on each axis."""
        found: list[int] = []
        for size in reversed(self.axes):
            rank, at = divmod(rank, size)
            found.append(at)
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A tensor on a mesh: axes split its dims, share out its value, or (all the others) copy it.

    `splits` names, for each split dim, the axes that split it, the one that makes the largest parts first.
    Over the axes of `partial` the value is the sum of what devices hold. `sizes` gives the parts of a dim
    that is split by one axis into unequal ones.
    """

    mesh: Mesh
    splits: tuple[tuple[str, tuple[int, ...]], ...] = ()
    partial: tuple[int, ...] = ()
    sizes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        used = [axis for _, axes in self.splits for axis in axes] + list(self.partial)
        assert len(used) == len(set(used)), f"an axis is used twice: {self}"

    def axes_of(self, dim: str) -> tuple[int, ...]:
        """The axes that split a dim, outermost parts first."""
        return dict(self.splits).get(dim, ())

    def copies(self) -> tuple[int, ...]:
        """The axes along which every device holds the same."""
        used = {axis for _, axes in self.splits for axis in axes} | set(self.partial)
        return tuple(axis for axis in range(len(self.mesh.axes)) if axis not in used)

    def parts(self, dim: str) -> int:
        """Into how many parts a dim is split."""
        return prod(self.mesh.axes[axis] for axis in self.axes_of(dim))

    def __str__(self) -> str:
        words = [
            f"{dim}/{'·'.join(f'{self.mesh.axes[a]}@{a}' for a in axes)}" for dim, axes in self.splits if axes
        ]
        words += [f"sum{self.mesh.axes[axis]}@{axis}" for axis in self.partial]
        return "[" + " ".join(words or ["whole"]) + "]"


def build_layout(
    mesh: Mesh,
    splits: Mapping[str, Iterable[int]],
    partial: Iterable[int] = (),
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> Layout:
    """A layout in its one written form: axes of size 1 left out, dims in order."""
    kept = {dim: tuple(a for a in axes if mesh.axes[a] > 1) for dim, axes in splits.items()}
    return Layout(
        mesh=mesh,
        splits=tuple(sorted((dim, axes) for dim, axes in kept.items() if axes)),
        partial=tuple(sorted(axis for axis in partial if mesh.axes[axis] > 1)),
        sizes=tuple(sorted((dim, parts) for dim, parts in (sizes or {}).items() if kept.get(dim))),
    )


def region(layout: Layout, sizes: Mapping[str, int], rank: int) -> Region:
    """The part of each dim that the device at position `rank` of the mesh holds."""
    at = layout.mesh.coordinates(rank)
    given = dict(layout.sizes)
    found: Region = {}
    for dim, size in sizes.items():
        axes = layout.axes_of(dim)
        if dim in given and axes:
            start = sum(given[dim][: at[axes[0]]])
            found[dim] = (start, start + given[dim][at[axes[0]]])
            continue
        index, parts = 0, 1
        for axis in axes:
            index = index * layout.mesh.axes[axis] + at[axis]
            parts *= layout.mesh.axes[axis]
        # Parts differ by one at most where they do not divide.
        found[dim] = (index * size // parts, (index + 1) * size // parts)
    return found


def share(layout: Layout, rank: int) -> tuple[int, int]:
    """Which share of the value the device holds, and of how many."""
    at = layout.mesh.coordinates(rank)
    index, count = 0, 1
    for axis in layout.partial:
        index = index * layout.mesh.axes[axis] + at[axis]
        count *= layout.mesh.axes[axis]
    return index, count
