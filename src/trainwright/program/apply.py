"""Moves carried out on arrays: each device uses only what devices of its group hold."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.program.layout import Layout, Region, region, share
from trainwright.program.moves import SUMS, Move, groups

Array = NDArray[Any]
Held = tuple[Region, Array]


def apply(move: Move, shards: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    """What each device of the target's mesh holds after a move, by rank; `shards` is what was held before."""
    before = {device: rank for rank, device in enumerate(move.source.mesh.devices)}
    after = {device: rank for rank, device in enumerate(move.target.mesh.devices)}
    found: dict[int, Array] = {}
    for senders, receivers in groups(move):
        ranks = [before[device] for device in senders]
        for rank in (after[device] for device in receivers):
            found[rank] = _received(move, ranks, rank, shards, dims)
    return [found[rank] for rank in range(len(after))]


def apply_all(moves: Iterable[Move], shards: Sequence[Array], dims: Mapping[str, int]) -> list[Array]:
    """What devices hold after moves one after another."""
    held = list(shards)
    for move in moves:
        held = apply(move, held, dims)
    return held


def _received(
    move: Move, ranks: list[int], rank: int, shards: Sequence[Array], dims: Mapping[str, int]
) -> Array:
    """What one device holds after the move, from what `ranks` held."""
    wanted = region(move.target, dims, rank)
    held = [(region(move.source, dims, each), shards[each]) for each in ranks]
    if move.kind == "zero":
        at = move.target.mesh.coordinates(rank)
        return shards[rank] if not any(at[axis] for axis in move.axes) else np.zeros_like(shards[rank])
    if move.kind == "exchange":
        return _exchanged(move, held, rank, wanted)
    if move.kind in SUMS:
        return np.asarray(np.sum([_joined(wanted, [each]) for each in held], axis=0))
    return _joined(wanted, held)


def _exchanged(move: Move, held: list[Held], rank: int, wanted: Region) -> Array:
    """The sum of the shares of the wanted part, for the first share; zeros for others."""
    shares: dict[int, list[Held]] = {}
    for index, each in enumerate(held):
        shares.setdefault(share(move.source, index)[0], []).append(each)
    total = np.sum([_joined(wanted, each) for each in shares.values()], axis=0)
    return total if share(move.target, rank)[0] == 0 else np.zeros_like(total)


def _joined(wanted: Region, held: Iterable[Held]) -> Array:
    """A part put together from the parts that overlap it; together they must cover it."""
    held = list(held)
    result = np.zeros([high - low for low, high in wanted.values()], dtype=held[0][1].dtype)
    missing = np.ones(result.shape, dtype=bool)
    for part, values in held:
        overlap = [(max(low, part[dim][0]), min(high, part[dim][1])) for dim, (low, high) in wanted.items()]
        if all(low < high for low, high in overlap):
            here = _slices(overlap, wanted)
            result[here] = values[_slices(overlap, part)]
            missing[here] = False
    assert not missing.any(), f"no device of the group holds all of {wanted}"
    return result


def _slices(overlap: Sequence[tuple[int, int]], part: Region) -> tuple[slice, ...]:
    return tuple(
        slice(low - start, high - start)
        for (low, high), (start, _) in zip(overlap, part.values(), strict=True)
    )


def shards_of(whole: Array, layout: Layout, dims: Mapping[str, int]) -> list[Array]:
    """What each device holds of a tensor in a layout, by rank; the shares of a value differ and sum to it."""
    found = []
    for rank in range(len(layout.mesh.devices)):
        part = whole[tuple(slice(low, high) for low, high in region(layout, dims, rank).values())]
        index, count = share(layout, rank)
        # The first share is what the others, 1, 2, … , leave of the value.
        others = count * (count - 1) // 2
        found.append(part - others if index == 0 else np.full_like(part, index))
    return found


def whole_of(shards: Sequence[Array], layout: Layout, dims: Mapping[str, int]) -> Array:
    """The tensor that devices hold together; devices that should hold the same must do so."""
    first: dict[tuple[object, ...], Array] = {}
    result = np.zeros(tuple(dims.values()), dtype=shards[0].dtype)
    for rank, values in enumerate(shards):
        part = region(layout, dims, rank)
        key = (*part.values(), share(layout, rank)[0])
        if key in first:
            assert np.array_equal(first[key], values), (
                f"device {layout.mesh.devices[rank]} holds another copy"
            )
            continue
        first[key] = values
        result[tuple(slice(low, high) for low, high in part.values())] += values
    return result
