"""The cheapest chain of collectives and messages that turns a tensor in one layout into another."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from trainwright.program.exchange import build_exchange
from trainwright.program.grid import Dims, Grid, coarser, grids
from trainwright.program.layout import Layout, Mesh, build_layout
from trainwright.program.moves import Move, total_s
from trainwright.program.network import Network
from trainwright.program.path import cheapest
from trainwright.program.prices import Prices
from trainwright.program.space import build_space

Form = tuple[int, ...]  # of devices: first, step and count; or -1 and all of them if not evenly apart
Moves = tuple[Move, ...]
Question = tuple[object, ...]
Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST_AXES = 3  # of a grid, if axes that always serve together can be joined
_MOST_EXCHANGED = 128  # devices among which messages are tried against a chain of collectives
# Of a chain's time, what messages must stay below: they are priced as if they were alone on the links.
_EXCHANGE_SHARE = 0.5
_MOST = 65536  # answers and forms that are remembered
_forms: dict[int, tuple[tuple[int, ...], Form]] = {}
_answers: dict[Question, Moves] = {}
_elsewhere: dict[Question, tuple[Layout, Layout, Moves]] = {}


def convert(
    source: Layout, target: Layout, dims: Mapping[str, int], element_bytes: float, network: Network
) -> Moves:
    """The moves that take least time together, in order; none if the layouts say the same.

    `dims` are the tensor's dims in order, with their sizes. The moves are written on axes that refine those
    of both meshes. The same question is answered from memory, on other devices that lie alike too.
    """
    forms = _form(source.mesh.devices), _form(target.mesh.devices)
    tensor = tuple(dims.items())
    rest = (*_words(source), *_words(target), tensor, element_bytes, network)
    found = _answers.get((forms, rest))
    if found is None:
        found = _translated(source, target, (_relative(*forms, network), rest))
        if found is None:
            found = _cheapest(source, target, tensor, element_bytes, network)
            _remember(_elsewhere, (_relative(*forms, network), rest), (source, target, found))
        _remember(_answers, (forms, rest), found)
    return found


def _words(layout: Layout) -> tuple[object, ...]:
    return layout.mesh.axes, layout.splits, layout.partial, layout.sizes


def _remember(memory: dict[Key, Value], key: Key, value: Value) -> None:
    if len(memory) >= _MOST:
        memory.clear()
    memory[key] = value


def _form(devices: tuple[int, ...]) -> Form:
    """Devices written briefly: hashing thousands of numbers takes longer than the rest of an answer."""
    known = _forms.get(id(devices))
    if known is not None and known[0] is devices:
        return known[1]
    step = devices[1] - devices[0] if len(devices) > 1 else 1
    even = step > 0 and devices == tuple(range(devices[0], devices[0] + step * len(devices), step))
    form = (devices[0], step, len(devices)) if even else (-1, *devices)
    _remember(_forms, id(devices), (devices, form))
    return form


def _relative(source: Form, target: Form, network: Network) -> Question:
    """What of the devices matters to costs: how far apart they are, and where they lie on the levels."""
    if source[0] < 0 or target[0] < 0 or network.mapping:
        return source, target
    around = network.links[-2].inside if len(network.links) > 1 else 1
    return source[0] % around, source[1:], target[0] - source[0], target[1:]


def _translated(source: Layout, target: Layout, question: Question) -> Moves | None:
    """The answer to the same question on other devices, told of these."""
    if question not in _elsewhere:
        return None
    first, second, moves = _elsewhere[question]
    told = {first.mesh.devices: source.mesh.devices, second.mesh.devices: target.mesh.devices}

    def here(layout: Layout) -> Layout:
        return replace(layout, mesh=Mesh(devices=told[layout.mesh.devices], axes=layout.mesh.axes))

    return tuple(replace(move, source=here(move.source), target=here(move.target)) for move in moves)


def _cheapest(source: Layout, target: Layout, dims: Dims, element_bytes: float, network: Network) -> Moves:
    chain = _by_collectives(source, target, dims, element_bytes, network)
    if chain is not None and not _worth_messages(source.mesh, target.mesh, chain):
        return chain
    messages = min(_by_exchange(source, target, dims, element_bytes, network), key=_rank)
    if chain is None or total_s(messages) < _EXCHANGE_SHARE * total_s(chain):
        return messages
    return chain


def _rank(moves: Moves) -> tuple[float, int, str]:
    return total_s(moves), len(moves), " ".join(map(str, moves))


def _worth_messages(source: Mesh, target: Mesh, chain: Moves) -> bool:
    """Whether an exchange may be much faster: devices may have what they want, or get more than they want."""
    if source.devices == target.devices:
        return len(chain) > 1 and len(source.devices) <= _MOST_EXCHANGED
    return not set(source.devices).isdisjoint(target.devices)


def _by_collectives(
    source: Layout, target: Layout, dims: Dims, element_bytes: float, network: Network
) -> Moves | None:
    """The cheapest chain of collectives on any grid that serves both layouts."""
    found = []
    for fine in grids(source, target, dims):
        grid = coarser(fine, _MOST_AXES)
        meshes = _meshes(source.mesh.devices, target.mesh.devices, grid)
        prices = _prices(network, *meshes)
        chain = cheapest(build_space(dims, element_bytes, grid, meshes, prices))
        if chain is not None:
            found.append(chain)
    return min(found, key=_rank, default=None)


def _meshes(source: tuple[int, ...], target: tuple[int, ...], grid: Grid) -> tuple[Mesh, Mesh]:
    return Mesh(devices=source, axes=grid.source), Mesh(devices=target, axes=grid.target)


@lru_cache(maxsize=256)
def _prices(network: Network, source: Mesh, target: Mesh) -> Prices:
    shaped = (
        network.places(np.array(mesh.devices, dtype=np.int64)).reshape(mesh.axes) for mesh in (source, target)
    )
    one, other = shaped
    return Prices(network=network, grids=(one, other))


def _by_exchange(
    source: Layout, target: Layout, dims: Dims, element_bytes: float, network: Network
) -> Iterator[Moves]:
    """Chains with an exchange: from the source or from its sum, to the target or to a finer split of it."""
    cost = dims, element_bytes, network
    for before in _summed(source, dims):
        head = _by_collectives(source, before, *cost)
        for after in (target, *_finer(target, dims)):
            tail = _by_collectives(after, target, *cost)
            if head is not None and tail is not None:
                yield (*head, build_exchange(before, after, dict(dims), element_bytes, network), *tail)


def _summed(layout: Layout, dims: Dims) -> Iterator[Layout]:
    """The layout, and those in which its shares are summed: everywhere, or split along a dim."""
    yield layout
    if layout.partial:
        yield replace(layout, partial=())
        yield from _split_by(replace(layout, partial=()), layout.partial, dims)


def _finer(layout: Layout, dims: Dims) -> Iterator[Layout]:
    """The layouts in which copies hold different parts along one dim."""
    copies = tuple(axis for axis in layout.copies() if layout.mesh.axes[axis] > 1)
    if copies:
        yield from _split_by(layout, copies, dims)


def _split_by(layout: Layout, axes: tuple[int, ...], dims: Dims) -> Iterator[Layout]:
    given = dict(layout.sizes)
    for dim, size in dims:
        finer = build_layout(
            layout.mesh, {**dict(layout.splits), dim: (*layout.axes_of(dim), *axes)}, layout.partial, given
        )
        if dim not in given and size % finer.parts(dim) == 0:
            yield finer
