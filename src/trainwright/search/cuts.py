"""Layers cut into stages, each with as little done again as its memory allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from math import inf

import numpy as np

from trainwright.search.blocks import Costs, Floats

Pair = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """By stage: the bytes that its layers may use, and the microbatches that it holds at once."""

    limit_bytes: Floats
    held: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The layers of each stage, the mode of each layer, and what is expected of each stage."""

    counts: tuple[int, ...]
    modes: tuple[str, ...]  # by layer
    time_s: Floats  # by stage, for one microbatch
    used_bytes: Floats  # by stage


def best_cut(costs: Mapping[str, Costs], state_bytes: Floats, rooms: Rooms) -> Cut | None:
    """The cut whose slowest stage is fastest, with at most two modes in a stage; None if nothing fits.

    For every run of layers the time is that of the best two modes, of which the smaller takes as large a
    share as memory needs; the cut is exact for these times (dynamic programming). Then layers are given
    modes one by one, those first that save most bytes per second.
    """
    layers, stages = len(state_bytes), len(rooms.held)
    if stages > layers:
        return None
    best = np.full(layers + 1, inf)
    best[0] = 0.0
    choices = []
    for stage in range(stages):
        run_s = _run_seconds(costs, state_bytes, rooms.limit_bytes[stage], rooms.held[stage])
        worst = np.maximum(best[:, None], run_s)
        choices.append(worst.argmin(axis=0))
        best = worst.min(axis=0)
    if not np.isfinite(best[-1]):
        return None
    ends = [layers]
    for choice in reversed(choices):
        ends.append(int(choice[ends[-1]]))
    return _assigned(costs, state_bytes, rooms, ends[::-1])


def _run_seconds(costs: Mapping[str, Costs], state_bytes: Floats, limit_bytes: float, held: float) -> Floats:
    """The time of layers i to j−1 as one stage, for all i and j; infinite where they do not fit.

    Of two modes the work counts as the larger of both, beside all that is kept; or, where that is less,
    beside what the layers up to the one at work keep in the larger mode.
    """
    room = limit_bytes - _sums(state_bytes)
    times = {mode: _sums(each.time_s) for mode, each in costs.items()}
    kept = {mode: _sums(each.kept_bytes) for mode, each in costs.items()}
    best = np.full(room.shape, inf)
    for one, other in combinations_with_replacement(costs, 2):
        work = np.maximum(costs[one].work_bytes, costs[other].work_bytes)
        below = np.maximum(costs[one].kept_bytes, costs[other].kept_bytes)
        for free, times_held in ((room - _most(work), held), (room - _peaks(below, work), held - 1.0)):
            found = _shared_s((times[one], times[other]), (kept[one], kept[other]), free, times_held)
            best = np.minimum(best, found)
    best[np.tril_indices(len(best))] = inf
    return best


def _shared_s(times: Pair, kept: Pair, free: Floats, held: float) -> Floats:
    """The time of layers, as few as must be in the second mode; infinite where that does not help."""
    more, less = held * kept[0], held * kept[1]
    share = np.clip((more - free) / np.maximum(more - less, 1e-9), 0.0, 1.0)
    fits = np.where(share > 0.0, np.minimum(more, less), more) <= free
    return np.where(fits, times[0] + share * (times[1] - times[0]), inf)


def _assigned(
    costs: Mapping[str, Costs], state_bytes: Floats, rooms: Rooms, bounds: Sequence[int]
) -> Cut | None:
    modes: list[str] = []
    times, used = [], []
    for stage, (start, end) in enumerate(pairwise(bounds)):
        chosen = _stage_modes(
            {mode: _slice(each, start, end) for mode, each in costs.items()},
            rooms.limit_bytes[stage] - float(state_bytes[start:end].sum()),
            rooms.held[stage],
        )
        if chosen is None:
            return None
        found, time_s, taken = chosen
        modes += found
        times.append(time_s)
        used.append(taken + float(state_bytes[start:end].sum()))
    return Cut(
        counts=tuple(b - a for a, b in pairwise(bounds)),
        modes=tuple(modes), time_s=np.array(times), used_bytes=np.array(used),
    )  # fmt: skip


def _stage_modes(
    costs: Mapping[str, Costs], limit_bytes: float, held: float
) -> tuple[list[str], float, float] | None:
    """The modes of a stage's layers, their time and bytes: the best that fits of all pairs of modes."""
    found = (_pair_modes(costs, (one, other), limit_bytes, held) for one in costs for other in costs)
    return min((each for each in found if each is not None), key=lambda each: each[1], default=None)


def _pair_modes(
    costs: Mapping[str, Costs], pair: tuple[str, str], limit_bytes: float, held: float
) -> tuple[list[str], float, float] | None:
    """All layers in the first mode, then as many as must be in the second; None if that does not suffice."""
    one, other = (costs[mode] for mode in pair)
    saved = held * (one.kept_bytes - other.kept_bytes)
    gain = saved / np.maximum(other.time_s - one.time_s, 1e-12)
    place = np.argsort(np.argsort(-gain, kind="stable"), kind="stable")
    rows = len(gain) + 1 if pair[0] != pair[1] else 1
    changed = place[None, :] < np.arange(rows)[:, None]  # the first row has none in the second mode
    kept = np.where(changed, other.kept_bytes, one.kept_bytes)
    work = np.where(changed, other.work_bytes, one.work_bytes)
    taken = (held - 1.0) * kept.sum(axis=1) + (np.cumsum(kept, axis=1) + work).max(axis=1)
    fitting = np.flatnonzero(taken <= limit_bytes)
    if not len(fitting):
        return None
    row = changed[fitting[0]]
    time_s = float(np.where(row, other.time_s, one.time_s).sum())
    return [pair[int(each)] for each in row], time_s, float(taken[fitting[0]])


def _slice(costs: Costs, start: int, end: int) -> Costs:
    return Costs(
        time_s=costs.time_s[start:end], kept_bytes=costs.kept_bytes[start:end],
        work_bytes=costs.work_bytes[start:end],
    )  # fmt: skip


def _sums(values: Floats) -> Floats:
    """The sum of layers i to j−1."""
    ends = np.append(0.0, np.cumsum(values))
    return np.asarray(ends[None, :] - ends[:, None])


def _peaks(kept: Floats, work: Floats) -> Floats:
    """The most of layers i to j−1: what one works with, beside what it and those before it keep."""
    ends = np.append(0.0, np.cumsum(kept))
    return np.asarray(_most(ends[1:] + work) - ends[:, None])


def _most(values: Floats) -> Floats:
    """The largest of layers i to j−1."""
    count = len(values)
    found = np.zeros((count + 1, count + 1))
    for start in range(count):
        found[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return found
