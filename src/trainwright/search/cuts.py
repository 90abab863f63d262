"""Layers cut into stages, each with as little done again as its memory allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from math import inf

import numpy as np

from trainwright.search.blocks import Costs, Floats


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
    """The time of layers i to j−1 as one stage, for all i and j; infinite where they do not fit."""
    states = _sums(state_bytes)
    times = {mode: _sums(each.time_s) for mode, each in costs.items()}
    kept = {mode: held * _sums(each.kept_bytes) for mode, each in costs.items()}
    work = {mode: _most(each.work_bytes) for mode, each in costs.items()}
    best = np.full(states.shape, inf)
    for one, other in combinations_with_replacement(costs, 2):
        free = limit_bytes - states - np.maximum(work[one], work[other])
        saved = np.maximum(kept[one] - kept[other], 1e-9)
        share = np.clip((kept[one] - free) / saved, 0.0, 1.0)
        found = times[one] + share * (times[other] - times[one])
        fits = np.where(share > 0.0, np.minimum(kept[one], kept[other]), kept[one]) <= free
        best = np.minimum(best, np.where(fits, found, inf))
    best[np.tril_indices(len(best))] = inf
    return best


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
    modes = [pair[0]] * len(saved)
    order = np.argsort(-gain, kind="stable").tolist() if pair[0] != pair[1] else []
    for layer in (*order, None):
        taken = _taken(costs, modes, held)
        if taken <= limit_bytes:
            return modes, sum(float(costs[mode].time_s[at]) for at, mode in enumerate(modes)), taken
        if layer is not None:
            modes[layer] = pair[1]
    return None


def _taken(costs: Mapping[str, Costs], modes: Sequence[str], held: float) -> float:
    """Bytes of layers in some modes: kept by all, and the most that one of them works with."""
    pairs = list(enumerate(modes))
    kept = sum(float(costs[mode].kept_bytes[at]) for at, mode in pairs)
    return held * kept + max(float(costs[mode].work_bytes[at]) for at, mode in pairs)


def _slice(costs: Costs, start: int, end: int) -> Costs:
    return Costs(
        time_s=costs.time_s[start:end], kept_bytes=costs.kept_bytes[start:end],
        work_bytes=costs.work_bytes[start:end],
    )  # fmt: skip


def _sums(values: Floats) -> Floats:
    """The sum of layers i to j−1."""
    ends = np.append(0.0, np.cumsum(values))
    return np.asarray(ends[None, :] - ends[:, None])


def _most(values: Floats) -> Floats:
    """The largest of layers i to j−1."""
    count = len(values)
    found = np.zeros((count + 1, count + 1))
    for start in range(count):
        found[start, start + 1 :] = np.maximum.accumulate(values[start:])
    return found
