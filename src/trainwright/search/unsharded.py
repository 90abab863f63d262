"""The strategies of a space without their sharding, and the shardings that a stack can run with each.

Of the rules of a stack, those on schedules and those on experts and sharding read different knobs. Each kind
is judged over the product of its own knobs, which is far smaller than that of all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import prod

import numpy as np
from numpy.typing import NDArray

from trainwright.plan.legality import PlanFacts, illegal_schedule, illegal_sharding, illegal_zero
from trainwright.plan.strategy import SCHEDULES, Strategies
from trainwright.search.space import Grid, Space, grids, strategies_of
from trainwright.stack.capability import Capability

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_MOST = 1 << 19  # strategies without their sharding in one block
_SCHEDULE = ("schedule", "vpp", "micro_batch")
_SHARDING = ("zero", "shard")
_PLAIN: Mapping[tuple[str, ...], Sequence[tuple[int, ...]]] = {
    _SCHEDULE: [(SCHEDULES.index("1f1b"), 1, 1)],
    ("ep", "etp"): [(1, 1)],
    _SHARDING: [(0, 0)],
    ("sp",): [(0,)],
    ("cp_kind",): [(0,)],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnshardedBlock:
    """Strategies as if nothing were sharded, and the shardings of each.

    Those of strategy i are `count[i]` from `start[i]` on. A stack may still refuse some, by rules that read
    both sharding and schedule.
    """

    strategies: Strategies
    start: Ints
    count: Ints
    zero: Ints
    shard: Ints

    def sharded(self, rows: Ints) -> Strategies:
        """Some of the strategies, with each of their shardings."""
        count = self.count[rows]
        ends = np.cumsum(count)
        which = np.arange(int(count.sum())) + np.repeat(self.start[rows] - ends + count, count)
        chosen = self.strategies.take(np.repeat(rows, count))
        return replace(chosen, zero=self.zero[which], shard=self.shard[which])

    def blocks(self, rows: Ints, size: int) -> Iterator[Strategies]:
        """Some of the strategies with their shardings, in blocks of about `size`."""
        which = (np.cumsum(self.count[rows]) - 1) // size
        for part in np.split(rows, np.flatnonzero(np.diff(which)) + 1):
            yield self.sharded(part)


_NONE = np.zeros(0, dtype=np.int64)
_NOTHING = UnshardedBlock(
    strategies=Strategies(**dict.fromkeys(Strategies.__dataclass_fields__, _NONE)),
    start=_NONE, count=_NONE, zero=_NONE, shard=_NONE,
)  # fmt: skip


def unsharded_blocks(
    space: Space, capability: Capability, facts: PlanFacts, size: int = _MOST
) -> Iterator[UnshardedBlock]:
    """Blocks of about `size`, or fewer, that have every strategy of a space that the stack can run."""
    pending: list[Grid] = []
    count = 0
    for grid in grids(space):
        pending.append(grid)
        count += _size(grid, {_SHARDING})
        if count >= size:
            yield _block(pending, capability, facts)
            pending, count = [], 0
    if pending:
        yield _block(pending, capability, facts)


def _block(listed: Sequence[Grid], capability: Capability, facts: PlanFacts) -> UnshardedBlock:
    listed = _with_stages(listed, capability, facts)
    if not listed:
        return _NOTHING
    pipelines, pipelines_of = _pipelines(listed, capability, facts)
    unscheduled = strategies_of([_sharding_last(grid) for grid in listed])
    allowed = ~illegal_sharding(capability, unscheduled, facts)
    # What has the same other knobs stands together, once for each sharding.
    times = np.array([len(grid[_SHARDING]) for grid in listed])
    others_of = np.array([_size(grid, {_SCHEDULE, _SHARDING}) for grid in listed])
    repeated = np.repeat(times, others_of)
    first = np.cumsum(repeated) - repeated
    count = np.add.reduceat(allowed, first, dtype=np.int64)
    some = count > 0
    others = np.flatnonzero(some)
    others_of = np.add.reduceat(some, np.cumsum(others_of) - others_of, dtype=np.int64)
    pipeline, other = _paired(pipelines_of, others_of)
    chosen = unscheduled.take(first[others][other])
    return UnshardedBlock(
        strategies=replace(
            chosen, **{knob: getattr(pipelines, knob)[pipeline] for knob in _SCHEDULE},
            **dict.fromkeys(_SHARDING, np.broadcast_to(np.int64(0), len(chosen))),
        ),
        start=(np.cumsum(count) - count)[others][other],
        count=count[others][other],
        zero=unscheduled.zero[allowed],
        shard=unscheduled.shard[allowed],
    )  # fmt: skip


def _with_stages(listed: Sequence[Grid], capability: Capability, facts: PlanFacts) -> Sequence[Grid]:
    """The grids with those ZeRO stages and groups that the stack can run with any of the other knobs."""
    every = strategies_of([_alone(grid, _SHARDING) for grid in listed])
    able, _ = _any_of(listed, _SHARDING, ~illegal_zero(capability, every, facts))
    ends = np.cumsum([len(grid[_SHARDING]) for grid in listed]).tolist()
    found = []
    for grid, end in zip(listed, ends, strict=True):
        own = able[end - len(grid[_SHARDING]) : end].tolist()
        if any(own):
            found.append({**grid, _SHARDING: list(compress(grid[_SHARDING], own))})
    return found


def _pipelines(listed: Sequence[Grid], capability: Capability, facts: PlanFacts) -> tuple[Strategies, Ints]:
    """The schedules of all grids that the stack can run with any other knobs, and how many each grid has."""
    every = strategies_of([_alone(grid, _SCHEDULE) for grid in listed])
    able, first = _any_of(listed, _SCHEDULE, ~illegal_schedule(capability, every, facts))
    own = np.array([len(grid[_SCHEDULE]) for grid in listed])
    return every.take(first[able]), np.add.reduceat(able, np.cumsum(own) - own, dtype=np.int64)


def _alone(grid: Grid, names: tuple[str, ...]) -> Grid:
    """A grid with one of the axes that rules read, and plain values on the others."""
    return {**grid, **_PLAIN, names: grid[names]}


def _any_of(listed: Sequence[Grid], names: tuple[str, ...], allowed: Flags) -> tuple[Flags, Ints]:
    """For each value of an axis of grids that are `_alone`: whether any of its strategies is allowed, and the
    first of them.
    """
    size = [_size(grid, {*_PLAIN}) for grid in listed]
    times = np.repeat(size, [len(grid[names]) for grid in listed])
    first = np.cumsum(times) - times
    return np.logical_or.reduceat(allowed, first), first


def _sharding_last(grid: Grid) -> Grid:
    others = {names: values for names, values in grid.items() if names != _SHARDING}
    return {**others, _SCHEDULE: _PLAIN[_SCHEDULE], _SHARDING: grid[_SHARDING]}


def _size(grid: Grid, without: set[tuple[str, ...]]) -> int:
    return prod(len(values) for names, values in grid.items() if names not in without)


def _paired(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """Of groups with these numbers of members on each side, every pair of members of the same group."""
    size = left * right
    within = np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
    one, other = np.divmod(within, np.repeat(right, size))
    return one + np.repeat(np.cumsum(left) - left, size), other + np.repeat(np.cumsum(right) - right, size)
