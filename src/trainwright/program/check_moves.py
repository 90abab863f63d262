"""Whether moves do what they say: tried out, once for each form, on numbers."""

from collections.abc import Mapping
from functools import lru_cache
from math import lcm

import numpy as np

from trainwright.program.apply import apply, shards_of, whole_of
from trainwright.program.layout import Layout, Mesh
from trainwright.program.moves import Move
from trainwright.program.step import GRADIENT, Step
from trainwright.program.values import Shape

_MOST_RANKS = 512  # beyond, a move is taken at its word
Signature = tuple[tuple[str, bytes, tuple[int, ...]], ...]
Fault = tuple[str, int]  # the rule, and the device


def broken_move(step: Step, shapes: Mapping[str, Shape]) -> Fault | None:
    """The rule that a move breaks, and a device; None if it is right."""
    move = step.move
    assert move is not None
    if step.scale != 1.0:
        return f"scales what it moves by {step.scale:g}", step.mesh.devices[0]
    ends = (("reads", step.reads, move.source), ("writes", step.writes, move.target))
    for verb, values, layout in ends:
        for value in values:
            if value.layout.mesh.devices != layout.mesh.devices:
                pairs = zip(value.layout.mesh.devices, layout.mesh.devices, strict=False)
                wrong = next((b for a, b in pairs if a != b), layout.mesh.devices[0])
                return f"{verb} {value.name} on devices that do not hold their counterpart", wrong
            dims = tuple(shapes[value.name.removeprefix(GRADIENT)].dims.items())
            if value.layout != layout and signature(value.layout, dims) != signature(layout, dims):
                return f"{verb} {value.name} {value.layout}, but goes by {layout}", layout.mesh.devices[0]
    if step.kind != move.kind:
        return f"is called {step.kind}, but does {move.kind}", step.mesh.devices[0]
    return _unfaithful(move)


@lru_cache(maxsize=4096)
def signature(layout: Layout, dims: tuple[tuple[str, int], ...]) -> Signature:
    """What each rank holds, however the mesh is written: of every dim its part, and its share of value."""
    axes = layout.mesh.axes
    at = np.indices(axes).reshape(len(axes), -1) if axes else np.zeros((0, 1), dtype=np.int64)
    given, sizes = dict(layout.sizes), dict(dims)
    found = []
    for dim, split in (*layout.splits, ("", layout.partial)):
        index = np.zeros(at.shape[1], dtype=np.int64)
        parts = 1
        for axis in split:
            index = index * axes[axis] + at[axis]
            parts *= axes[axis]
        if parts > 1:
            even = tuple(
                (n + 1) * sizes.get(dim, 0) // parts - n * sizes.get(dim, 0) // parts for n in range(parts)
            )
            found.append((dim, index.tobytes(), given.get(dim, even)))
    return tuple(found)


def _unfaithful(move: Move) -> Fault | None:
    """Try a move on numbers, told of ranks instead of devices, so that moves of one form are tried once."""
    devices = tuple(dict.fromkeys((*move.source.mesh.devices, *move.target.mesh.devices)))
    if len(devices) > _MOST_RANKS:
        return None
    rank = {device: number for number, device in enumerate(devices)}
    fault = _tried(move.kind, _told(move.source, rank), _told(move.target, rank), move.axes)
    return (fault[0], devices[fault[1]]) if fault else None


def _told(layout: Layout, rank: dict[int, int]) -> Layout:
    mesh = Mesh(devices=tuple(rank[device] for device in layout.mesh.devices), axes=layout.mesh.axes)
    return Layout(mesh=mesh, splits=layout.splits, partial=layout.partial, sizes=layout.sizes)


@lru_cache(maxsize=4096)
def _tried(kind: str, source: Layout, target: Layout, axes: tuple[int, ...]) -> Fault | None:
    move = Move(kind=kind, source=source, target=target, axes=axes, sent_bytes=0.0, seconds=0.0)
    dims = _sizes(source, target)
    # No place holds a small whole number: those are the shares of the others.
    whole = 1000.5 + np.arange(np.prod([*dims.values(), 1])).reshape(tuple(dims.values()))
    rule = f"does not turn {source} into {target} over axes {axes}"
    try:
        found = whole_of(apply(move, shards_of(whole, source, dims), dims), target, dims)
    except (AssertionError, IndexError, KeyError, ValueError):
        return rule, target.mesh.devices[0]
    return None if np.array_equal(found, whole) else (rule, target.mesh.devices[0])


def _sizes(source: Layout, target: Layout) -> dict[str, int]:
    """Sizes of the dims that either layout splits: as given, or such that both divide them."""
    dims = sorted({dim for layout in (source, target) for dim, _ in layout.splits})
    given = {dim: sum(sizes) for layout in (source, target) for dim, sizes in layout.sizes}
    return {dim: given.get(dim, lcm(source.parts(dim), target.parts(dim))) for dim in dims}
