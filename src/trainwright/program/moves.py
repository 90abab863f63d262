"""One step from a layout to the next, and the devices that take part in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from trainwright.program.layout import Layout, Mesh

# Among the devices of one mesh: over groups along axes, or device by device.
LOCAL = ("slice", "zero")  # keep a part; keep the value on one device, zeros on the others
WITHIN = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "permute")
# From the devices of one mesh to those of another: one to one, one to many, many to one.
ACROSS = ("send", "broadcast", "scatter", "gather", "reduce")
KINDS = (*LOCAL, *WITHIN, *ACROSS, "exchange")
SUMS = ("all_reduce", "reduce_scatter", "reduce")

Axes = tuple[int, ...]
Group = tuple[tuple[int, ...], tuple[int, ...]]  # devices that send, devices that receive


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A step that turns a tensor in one layout into the same tensor in another.

    `axes` are those of the meshes of `source` and `target` that it runs over; between two meshes, the axes
    over which only one of them extends. An `exchange` is what remains when no collective serves: each device
    fetches what it lacks from devices that have it, message by message.
    """

    kind: str
    source: Layout
    target: Layout
    axes: tuple[int, ...]
    sent_bytes: float  # by the device that sends most
    seconds: float

    @property
    def fallback(self) -> bool:
        """Whether no collective was found for it."""
        return self.kind == "exchange"

    def __str__(self) -> str:
        over = ",".join(map(str, self.axes))
        return f"{self.kind}({over}) {self.source} -> {self.target}"


def groups(move: Move) -> tuple[Group, ...]:
    """The devices that take part together, senders before receivers; members of a group are in order.

    A local move has every device on its own; an exchange has all devices in one group.
    """
    source, target = move.source.mesh, move.target.mesh
    if move.kind == "exchange":
        return ((source.devices, target.devices),)
    if move.kind == "permute":
        dims = sorted({dim for layout in (move.source, move.target) for dim, _ in layout.splits})
        before, after = (tuple(map(each.axes_of, dims)) for each in (move.source, move.target))
        senders = origins(source.axes, before, after).tolist()
        return tuple(
            ((source.devices[rank],), (device,)) for rank, device in zip(senders, target.devices, strict=True)
        )
    if move.kind in LOCAL:
        return tuple(((device,), (device,)) for device in source.devices)
    return tuple(_along(move, source, target))


def _along(move: Move, source: Mesh, target: Mesh) -> Iterator[Group]:
    """A group for each place on the axes that the move does not run over."""
    count = range(len(source.axes))
    copies = set(move.source.copies()) if move.kind in ACROSS else set()
    fixed = [axis for axis in count if axis not in move.axes]
    for place in product(*(range(source.axes[axis]) for axis in fixed)):
        at = dict(zip(fixed, place, strict=True))
        # Of devices that hold the same only the first sends.
        senders = [
            range(1) if axis in copies and axis in move.axes else range(source.axes[axis]) for axis in count
        ]
        yield _devices(source, senders, at), _devices(target, [range(n) for n in target.axes], at)


def _devices(mesh: Mesh, ranges: list[range], at: dict[int, int]) -> tuple[int, ...]:
    chosen = [(at[axis],) if axis in at else tuple(each) for axis, each in enumerate(ranges)]
    return tuple(mesh.devices[_rank(mesh, place)] for place in product(*chosen))


def _rank(mesh: Mesh, place: tuple[int, ...]) -> int:
    rank = 0
    for size, at in zip(mesh.axes, place, strict=True):
        rank = rank * size + at
    return rank


def origins(sizes: Axes, before: tuple[Axes, ...], after: tuple[Axes, ...]) -> NDArray[np.int64]:
    """For each rank, the rank that holds before a permute what this one holds after it.

    `before` and `after` are the axes that split each dim. What only one of them copies along is swapped with
    what only the other does, so that every device sends once.
    """
    at = np.indices(sizes).reshape(len(sizes), -1)
    found = at.copy()
    for old, new in zip(before, after, strict=True):
        index = np.zeros(at.shape[1], dtype=np.int64)
        for axis in new:
            index = index * sizes[axis] + at[axis]
        for axis in reversed(old):
            index, found[axis] = np.divmod(index, sizes[axis])
    was, now = ({axis for axes in splits for axis in axes} for splits in (before, after))
    for freed, taken in zip(sorted(now - was), sorted(was - now), strict=True):
        found[freed] = at[taken]
    return np.asarray(np.ravel_multi_index(tuple(found), sizes), dtype=np.int64)


def total_s(moves: tuple[Move, ...]) -> float:
    """The time of moves one after another."""
    return sum(move.seconds for move in moves)
