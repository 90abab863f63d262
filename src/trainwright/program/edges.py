"""Every move that leads away from a state of a tensor, with its cost."""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import prod
from typing import NamedTuple

from trainwright.program.grid import Axes, State, parts
from trainwright.program.space import Node, Space


class Edge(NamedTuple):
    """A move to a node."""

    kind: str
    axes: Axes
    node: Node
    sent_bytes: float
    seconds: float


def edges(space: Space, node: Node) -> Iterator[Edge]:
    """All moves away from a node."""
    copies = space.copies(node)
    yield from _slices(space, node, copies)
    yield from _zeros(space, node, copies)
    yield from _sums(space, node)
    yield from _gathers(space, node)
    yield from _trades(space, node)
    yield from _permutes(space, node, copies)
    if space.across and node.side == 0:
        yield from _crossings(space, node, copies)


def _chosen(axes: Axes) -> Iterator[Axes]:
    """Every choice of one or more axes."""
    for count in range(1, len(axes) + 1):
        yield from combinations(axes, count)


def _with(items: tuple[Axes, ...], index: int, new: Axes) -> tuple[Axes, ...]:
    return (*items[:index], new, *items[index + 1 :])


def _grown(space: Space, state: State, dim: int, axes: Axes) -> Iterator[State]:
    """The state with a dim split further, in the goal's order where it has one."""
    wanted = space.grid.goal.splits[dim]
    if len(axes) > 1 and wanted:
        axes = tuple(sorted(axes, key=lambda axis: wanted.index(axis) if axis in wanted else len(wanted)))
    for given in space.appended(dim, state, axes):
        yield State(
            _with(state.splits, dim, state.splits[dim] + axes),
            state.partial,
            _with(state.given, dim, given) if given else state.given,
        )


def _shrunk(state: State, dim: int, count: int) -> State:
    """The state with a dim no longer split by its last `count` axes."""
    kept = state.splits[dim][: len(state.splits[dim]) - count]
    given = _with(state.given, dim, ()) if state.given[dim] else state.given
    return State(_with(state.splits, dim, kept), state.partial, given)


def _summed(state: State, axes: Axes) -> State:
    return state._replace(partial=tuple(axis for axis in state.partial if axis not in axes))


def _slices(space: Space, node: Node, copies: Axes) -> Iterator[Edge]:
    for axes in _chosen(copies):
        for dim in space.used:
            for after in _grown(space, node.state, dim, axes):
                yield Edge("slice", axes, Node(node.side, after), 0.0, 0.0)


def _zeros(space: Space, node: Node, copies: Axes) -> Iterator[Edge]:
    wanted = tuple(axis for axis in copies if axis in space.grid.goal.partial)
    for axes in _chosen(wanted):
        partial = tuple(sorted(node.state.partial + axes))
        yield Edge("zero", axes, Node(node.side, node.state._replace(partial=partial)), 0.0, 0.0)


def _sums(space: Space, node: Node) -> Iterator[Edge]:
    """All-reduces over partial axes, and reduce-scatters from them to a dim."""
    side, state = node
    before = space.own_bytes(state)
    for axes in _chosen(state.partial):
        count = parts(axes, space.sizes)
        less = _summed(state, axes)
        seconds = space.prices.within("all_reduce", side, axes, before)
        yield Edge("all_reduce", axes, Node(side, less), 2 * (count - 1) / count * before, seconds)
        for dim in space.used:
            for after in _grown(space, less, dim, axes):
                padded = count * space.own_bytes(after)
                seconds = space.prices.within("reduce_scatter", side, axes, padded)
                yield Edge("reduce_scatter", axes, Node(side, after), (count - 1) / count * padded, seconds)


def _gathers(space: Space, node: Node) -> Iterator[Edge]:
    """All-gathers of the last axes of dims, of several dims at once too."""
    side, state = node
    own = space.own_bytes(state)
    free = [range(len(state.splits[dim]) - space.kept[dim] + 1) for dim in space.used]
    for counts in product(*free):
        axes: Axes = ()
        after = state
        for dim, count in zip(space.used, counts, strict=True):
            if count:
                axes += state.splits[dim][-count:]
                after = _shrunk(after, dim, count)
        if axes:
            members = parts(axes, space.sizes)
            seconds = space.prices.within("all_gather", side, tuple(sorted(axes)), members * own)
            yield Edge("all_gather", axes, Node(side, after), (members - 1) * own, seconds)


def _trades(space: Space, node: Node) -> Iterator[Edge]:
    """All-to-alls: the last axes of a dim become the last of another."""
    side, state = node
    for dim in space.used:
        for count in range(1, len(state.splits[dim]) - space.kept[dim] + 1):
            axes = state.splits[dim][-count:]
            less = _shrunk(state, dim, count)
            members = parts(axes, space.sizes)
            for other in space.used:
                for after in _grown(space, less, other, axes) if other != dim else ():
                    held = max(space.own_bytes(state), space.own_bytes(after))
                    seconds = space.prices.within("all_to_all", side, tuple(sorted(axes)), held)
                    yield Edge("all_to_all", axes, Node(side, after), (members - 1) / members * held, seconds)


def _permutes(space: Space, node: Node, copies: Axes) -> Iterator[Edge]:
    """The same parts on other devices: axes of a dim in another order, or two axes of equal size swapped."""
    side, state = node
    for splits in sorted({*_reordered(space, state), *_swapped(space, state, copies)} - {state.splits}):
        after = state._replace(splits=splits)
        moved = tuple(sorted(_moved(state.splits, splits)))
        own = space.own_bytes(state)
        seconds = space.prices.permute(side, state.splits, splits, own)
        yield Edge("permute", moved, Node(side, after), own, seconds)


def _reordered(space: Space, state: State) -> Iterator[tuple[Axes, ...]]:
    for dim in space.used:
        axes, kept = state.splits[dim], space.kept[dim]
        if not state.given[dim] and len(axes) - kept > 1:
            for order in permutations(axes[kept:]):
                yield _with(state.splits, dim, axes[:kept] + order)


def _swapped(space: Space, state: State, copies: Axes) -> Iterator[tuple[Axes, ...]]:
    loose = [
        axis for dim in space.used if not state.given[dim] for axis in state.splits[dim][space.kept[dim] :]
    ]
    for one, other in combinations((*loose, *copies), 2):
        if space.sizes[one] == space.sizes[other] and not (one in copies and other in copies):
            swap = {one: other, other: one}
            yield tuple(tuple(swap.get(axis, axis) for axis in axes) for axes in state.splits)


def _moved(before: tuple[Axes, ...], after: tuple[Axes, ...]) -> set[int]:
    return {axis for one, other in zip(before, after, strict=True) if one != other for axis in (*one, *other)}


def _crossings(space: Space, node: Node, copies: Axes) -> Iterator[Edge]:
    """Moves to the devices of the target."""
    extra = space.grid.extra
    own = space.own_bytes(node.state)
    if not extra:
        yield Edge("send", (), Node(1, node.state), own, space.prices.across("send", (), (), own))
    elif space.grid.source[extra[0]] == 1:
        yield from _to_more(space, node.state, own)
    else:
        yield from _to_fewer(space, node.state, tuple(axis for axis in extra if axis not in copies), own)


def _to_more(space: Space, state: State, own: float) -> Iterator[Edge]:
    extra = space.grid.extra
    yield Edge("broadcast", extra, Node(1, state), own, space.prices.across("broadcast", extra, extra, own))
    for dim in space.used:
        for after in _grown(space, state, dim, extra):
            sent = space.own_bytes(after) * parts(extra, space.sizes)
            seconds = space.prices.across("scatter", extra, extra, sent)
            yield Edge("scatter", extra, Node(1, after), sent, seconds)


def _to_fewer(space: Space, state: State, spread: Axes, own: float) -> Iterator[Edge]:
    """From one device of each that hold the same; `spread` are the extra axes along which they do not."""
    extra = space.grid.extra
    if not spread:
        yield Edge("send", extra, Node(1, state), own, space.prices.across("send", extra, (), own))
    elif set(spread) <= set(state.partial):
        after = Node(1, _summed(state, spread))
        yield Edge("reduce", extra, after, own, space.prices.across("reduce", extra, spread, own))
    for dim in space.used:
        if spread and set(state.splits[dim][-len(spread) :]) == set(spread):
            received = own * prod(space.sizes[axis] for axis in spread)
            seconds = space.prices.across("gather", extra, spread, received)
            yield Edge("gather", extra, Node(1, _shrunk(state, dim, len(spread))), own, seconds)
