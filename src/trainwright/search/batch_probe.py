"""The best time per sequence at every batch of a range, from one look at a thinned space of strategies.

A strategy is legal at the multiples of its unit, dp x micro batch (x pp, if it is interleaved or the stack
asks for that), and its step is nearly linear in the batch: so each strategy is estimated at one multiple near
the middle of the range, the best of each unit at the two ends, and every batch takes the best of the units
that it is a multiple of and that the stack can run there.

The space is thinned in what hardly depends on the batch: all but two ZeRO stages, most groups of sharding,
one kind of context parallelism, experts over more than two tensor ranks, tensor without sequence parallelism.
Stages and kinds are such as the stack can run. A strategy must fit the share of memory that may be filled.
What does not fit climbs the ladder of `ladder.py`; the number of recomputed or offloaded layers is
interpolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from trainwright.economics.batch import batch_charge
from trainwright.errors import BadInput
from trainwright.estimate.least import least_step_s
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Array
from trainwright.plan.legality import plan_facts
from trainwright.plan.strategy import CP_KINDS, OFFLOADS, SCHEDULES, Strategies, join_strategies
from trainwright.search.find import Question, build_facts, fits, runs, space_of, unbounded
from trainwright.search.ladder import Rung, bottom, on_rung, rung_knobs, rungs, without_gpipe
from trainwright.search.least_first import LeastFirst
from trainwright.search.space import Space, batch_unit
from trainwright.search.unsharded import unsharded_blocks

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
_REACH = 1.05  # times the best: what is slower on the fastest rung climbs no further
_TOGETHER = 1 << 14  # strategies that are estimated on several rungs at once, which spares tables of costs
# By offload with activations: the one without.
_KEEPING = {
    OFFLOADS.index("activations"): OFFLOADS.index("none"),
    OFFLOADS.index("both"): OFFLOADS.index("optimizer"),
}
_MOST_BATCHES = 4096  # that are compared; of more, the multiples of a power of two


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Of batches of a range: the best seconds per sequence, infinite where nothing fits or is far slower.

    Seconds are charged for what a large batch wastes, if the question has a critical batch. `legal` says
    where the stack can run any strategy, whether it fits or not.
    """

    batches: Ints
    sequence_s: Array
    legal: Flags

    def take(self, where: Flags) -> "BatchTimes":
        """Some of the batches."""
        return BatchTimes(
            batches=self.batches[where], sequence_s=self.sequence_s[where], legal=self.legal[where]
        )

    @property
    def best_s(self) -> float:
        """The least seconds per sequence; infinite if nothing fits."""
        return float(self.sequence_s.min(initial=np.inf))


def probe_batches(question: Question, span: tuple[int, int], middle: float) -> BatchTimes:
    """The times of the batches from one number of sequences to another; BadInput if nothing is legal.

    What is far slower than the best near the middle is left out.
    """
    space = replace(space_of(question, span[1]), span=span)
    if question.objective != "memory":
        space = without_gpipe(space)
    strategies, near = _able(question, space, _thinned(question, space), middle)
    unit = _units(question, strategies)
    sequence_s = _sequence_s(question, space, strategies, near)
    batches = _listed(span)
    chosen = _best_of_units(unit, sequence_s)
    lines = _Lines.of(question, strategies.take(chosen), near[chosen], sequence_s[chosen], span)
    charge = [
        batch_charge(each * question.job.seq, question.critical_batch_tokens) for each in batches.tolist()
    ]
    return BatchTimes(
        batches=batches,
        sequence_s=lines.best_s(question, space, batches) * np.array(charge),
        legal=np.asarray(_is_multiple(batches, np.unique(unit)).any(axis=1)),
    )


def _listed(span: tuple[int, int]) -> Ints:
    """The batches of a range, or the multiples of a power of two if they are very many."""
    low, high = span
    step = 1 << max((high - low) // _MOST_BATCHES, 0).bit_length()
    listed = np.arange(ceil(low / step) * step, high + 1, step, dtype=np.int64)
    return listed if len(listed) else np.array([low], dtype=np.int64)


def _nearest(unit: Ints, span: tuple[int, int], middle: float) -> Ints:
    """The multiple of each unit within the range that is nearest to the middle."""
    low, high = span
    times = np.clip(np.round(middle / unit), -(-low // unit), high // unit)
    return np.asarray(times * unit, dtype=np.int64)


def _is_multiple(batches: Ints, unit: Ints) -> Flags:
    return np.asarray(batches[:, None] % unit[None] == 0)


def _units(question: Question, strategies: Strategies) -> Ints:
    """The sequences of which each strategy's batch is a multiple, by the rules of the stack too."""
    rules = question.job.stack.capability.microbatches
    by_stages = np.array([rules.get(name) == "multiple" for name in SCHEDULES])[strategies.schedule]
    rounds = np.where(by_stages & (strategies.vpp == 1), strategies.pp, 1)
    return np.asarray(batch_unit(strategies) * rounds)


def _able(question: Question, space: Space, strategies: Strategies, middle: float) -> tuple[Strategies, Ints]:
    """What the stack can run, and the batch of each that is nearest to the middle; BadInput if nothing."""
    span, unit = space.span or (space.global_batch, space.global_batch), _units(question, strategies)
    inside = span[1] // unit * unit >= span[0]
    strategies, near = strategies.take(inside), _nearest(unit[inside], span, middle)
    able = _runs_on_a_rung(question, space, strategies, near)
    if not able.any():
        what = f"{space.graph.name} on {space.devices} devices at batches of {span[0]} to {span[1]}"
        rule = f"{question.job.stack.capability.title} has no strategy that satisfies the constraints"
        raise BadInput("search", what, rule, "relax --fix and --max, or change the batch or the stack")
    return strategies.take(able), near[able]


def _runs_on_a_rung(question: Question, space: Space, strategies: Strategies, batch: Ints) -> Flags:
    """Which strategies the stack can run, each at its own batch, on some rung.

    Where no rung is faster than the first, it must be that, as in a search.
    """
    job, ladder = replace(question.job, global_batch=batch), rungs(space)
    able = np.zeros(len(strategies), dtype=bool)
    for rung in ladder[:1] if bottom(space) else ladder:
        able |= runs(job, _stacked(strategies, [rung]))
    return able


def _thinned(question: Question, space: Space) -> Strategies:
    """The strategies that are estimated, on the fastest rung."""
    cluster = question.job.cluster
    groups = _groups(cluster.node_size, cluster.count)
    usual = {"zero": _stages(question), "etp": (1, 2), "cp_kind": _kind(question), "shard": groups}
    few = dict(space.fixed) | {knob: _few(space, knob, values) for knob, values in usual.items()}
    thin = on_rung(replace(space, fixed=few), rungs(space)[0])
    batch = space.global_batch if space.span in (None, (space.global_batch,) * 2) else 0
    facts = build_facts(replace(question.job, global_batch=batch))
    blocks = unsharded_blocks(thin, question.job.stack.capability, facts)
    strategies = join_strategies(each.sharded(np.arange(len(each.strategies))) for each in blocks)
    if "sp" in space.fixed or question.job.stack.capability.sequence_parallel == "never":
        return strategies
    alone = (strategies.tp == 1) | (space.seq % (strategies.tp * strategies.cp) != 0)
    return strategies.take(alone | (strategies.sp == 1))


def _stages(question: Question) -> tuple[int, ...]:
    """ZeRO stages: the third, and the first of 1, 2 and 0 that the stack has, alone and with other axes."""
    able = question.job.stack.capability
    allowed = ([z for z in each if z in able.zeros] for each in (able.pipeline_zeros, able.expert_zeros))
    return (*{next(z for z in (1, 2, 0) if z in each) for each in (*allowed, able.zeros) if {*each} - {3}}, 3)


def _kind(question: Question) -> tuple[int, ...]:
    """The first kind of context parallelism that the stack has for the model."""
    job, able = question.job, question.job.stack.capability
    facts = plan_facts(job.graph, seq=job.seq, global_batch=0)
    kinds = [
        index
        for index, name in enumerate(CP_KINDS)
        if name in able.cp_kinds
        and (name in able.window_cp_kinds or not facts.windowed)
        and (name in able.sink_cp_kinds or not facts.sinks)
    ]
    return tuple(kinds[:1]) or (0,)


def _few(space: Space, knob: str, usual: tuple[int, ...]) -> tuple[int, ...]:
    """The usual values of a knob that the question allows; those that it allows if none of them is."""
    stated = space.fixed.get(knob, usual)
    return tuple(value for value in stated if value in usual) or stated


def _groups(node: int, devices: int) -> tuple[int, ...]:
    """Sizes of groups that share weights: all ranks, a node, and 8, 64 ... nodes or the divisor below."""
    powers = range(max((devices // node).bit_length() // 3 + 1, 1))
    sizes = [min(node << 3 * power, devices) for power in powers]
    return (0, *dict.fromkeys(next(d for d in range(size, 0, -1) if devices % d == 0) for size in sizes))


def _sequence_s(question: Question, space: Space, strategies: Strategies, batch: Ints) -> Array:
    """Seconds per sequence of each strategy where it fits; infinite where nothing fits, or where it is slower
    than the best and there is one batch only.
    """
    span = space.span or (space.global_batch, space.global_batch)
    if span[0] < span[1] or bottom(space) is None:
        return _climb(question, space, strategies, batch)
    job = replace(question.job, global_batch=batch)
    waves = LeastFirst(least_step_s(unbounded(job), strategies) / batch * (1.0 - 1e-9))
    found = np.full(len(strategies), np.inf)
    while len(rows := waves.next(float(found.min(initial=np.inf)))):
        found[rows] = _climb(question, space, strategies.take(rows), batch[rows])
    return found


def _climb(question: Question, space: Space, strategies: Strategies, batch: Ints) -> Array:
    """Seconds per sequence of each strategy on the fastest rung where it fits; infinite if there is none."""
    first, *others = rungs(space)
    start = _on_rungs(question, strategies, batch, [first])[0]
    is_bound = bottom(space) is not None  # then no rung is faster than the first
    found = np.where(start.fit, start.sequence_s, np.inf)
    least = start.sequence_s if is_bound else np.zeros(len(strategies))
    rows = np.flatnonzero(~start.fit & (start.possible | (not is_bound)))
    rows = rows[least[rows] <= _REACH * found.min(initial=np.inf)]
    plain, counts = {first.offload: start}, question.job.stack.capability.recompute_layers != "every"
    for group in _grouped(others, len(rows)):
        rows = rows[least[rows] <= _REACH * found.min(initial=np.inf)]
        if not len(rows):
            break
        results = _on_rungs(question, strategies.take(rows), batch[rows], group)
        for rung, result in zip(group, results, strict=True):
            own_s = result.sequence_s
            if rung.counted and counts and rung.offload in plain:
                own_s = _counted_s(question, result, plain[rung.offload].take(rows))
            elif rung.recompute == 0:
                plain[rung.offload] = result.spread(rows, len(strategies))
                if rung.counts_offloaded and _KEEPING[rung.offload] in plain:
                    own_s = _counted_s(question, result, plain[_KEEPING[rung.offload]].take(rows))
            found[rows] = np.minimum(found[rows], np.where(result.fit, own_s, np.inf))
    return found


def _grouped(ladder: Sequence[Rung], count: int) -> Sequence[Sequence[Rung]]:
    """Rungs that are estimated together: all, or one by one, where that leaves out much."""
    return [ladder] if count * len(ladder) <= _TOGETHER else [[rung] for rung in ladder]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RungTimes:
    """Of strategies on a rung: seconds per sequence, bytes, whether they fit and could with more memory."""

    sequence_s: Array
    total_bytes: Array
    fit: Flags
    possible: Flags

    def take(self, rows: Ints | slice) -> "_RungTimes":
        """Some of the strategies."""
        return _RungTimes(
            sequence_s=self.sequence_s[rows], total_bytes=self.total_bytes[rows], fit=self.fit[rows],
            possible=self.possible[rows],
        )  # fmt: skip

    def spread(self, rows: Ints, count: int) -> "_RungTimes":
        """The same as some rows of more strategies: infinite in the others."""
        wide = np.full((2, count), np.inf)
        flags = np.zeros((2, count), dtype=bool)
        wide[:, rows], flags[:, rows] = (self.sequence_s, self.total_bytes), (self.fit, self.possible)
        return _RungTimes(sequence_s=wide[0], total_bytes=wide[1], fit=flags[0], possible=flags[1])


def _stacked(strategies: Strategies, ladder: Sequence[Rung]) -> Strategies:
    """Strategies on each of some rungs, one rung after another."""
    listed = [rung_knobs(rung) for rung in ladder]
    columns = {knob: np.repeat([each[knob] for each in listed], len(strategies)) for knob in listed[0]}
    return replace(join_strategies([strategies] * len(ladder)), **columns)


def _on_rungs(
    question: Question, strategies: Strategies, batch: Ints, ladder: Sequence[Rung]
) -> list[_RungTimes]:
    """Strategies on each of some rungs, each strategy at its own batch."""
    count, every = len(strategies), _stacked(strategies, ladder)
    batches = np.tile(batch, len(ladder))
    job = replace(question.job, global_batch=batches)
    result = estimate(unbounded(job), every, detail=False)
    result = replace(result, feasible=result.feasible & runs(job, every))
    whole = _RungTimes(
        sequence_s=result.step_s / batches, total_bytes=result.total_bytes,
        fit=fits(question.job, result, question.filled_share), possible=result.feasible,
    )  # fmt: skip
    return [whole.take(slice(at * count, (at + 1) * count)) for at in range(len(ladder))]


def _counted_s(question: Question, full: _RungTimes, plain: _RungTimes) -> Array:
    """Seconds with as many layers recomputed or offloaded as it takes to fit: time and memory are linear in
    them.
    """
    known = np.isfinite(plain.sequence_s)
    over = (
        np.where(known, plain.total_bytes, 0.0) - question.filled_share * question.job.cluster.capacity_bytes
    )
    freed = np.maximum(np.where(known, plain.total_bytes, 0.0) - full.total_bytes, 1.0)
    share = np.where(known, np.clip(over / freed, 0.0, 1.0), 1.0)
    less_s = np.where(known, plain.sequence_s, full.sequence_s)
    return np.asarray(less_s + share * (full.sequence_s - less_s))


def _best_of_units(unit: Ints, sequence_s: Array) -> Ints:
    """The strategy of the least time of each unit of which any fits."""
    order = np.lexsort((sequence_s, unit))
    order = order[np.isfinite(sequence_s[order])]
    return order[np.unique(unit[order], return_index=True)[1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """Seconds per sequence of some strategies over the batch, their steps taken as linear in it.

    A step lasts `start_s` and `slope_s` for each sequence; on the rung where it fits, `factor` times that.
    """

    strategies: Strategies
    unit: Ints
    start_s: Array
    slope_s: Array
    factor: Array

    @staticmethod
    def of(
        question: Question, strategies: Strategies, near: Ints, sequence_s: Array, span: tuple[int, int]
    ) -> "_Lines":
        unit = _units(question, strategies)
        if not len(strategies):
            return _Lines(
                strategies=strategies, unit=unit, start_s=sequence_s, slope_s=sequence_s, factor=sequence_s
            )
        low, high = -(-span[0] // unit) * unit, span[1] // unit * unit
        both = _steps_s(question, join_strategies([strategies, strategies]), np.concatenate([low, high]))
        low_s, high_s = both[: len(unit)], both[len(unit) :]
        slope = np.where(high > low, (high_s - low_s) / np.maximum(high - low, 1), low_s / low)
        start = low_s - slope * low
        return _Lines(
            strategies=strategies, unit=unit, start_s=start, slope_s=slope,
            factor=sequence_s / (start / near + slope),
        )  # fmt: skip

    def best_s(self, question: Question, space: Space, batches: Ints) -> Array:
        """The least seconds per sequence at each batch, of the strategies that the stack can run at it."""
        every = self.factor * (self.start_s / batches[:, None] + self.slope_s)
        able = _is_multiple(batches, self.unit)
        rows, columns = np.nonzero(able)
        chosen = self.strategies.take(columns)
        able[rows, columns] = _runs_on_a_rung(question, space, chosen, batches[rows])
        return np.asarray(np.where(able, every, np.inf).min(axis=1, initial=np.inf))


def _steps_s(question: Question, strategies: Strategies, batch: Ints) -> Array:
    job = replace(question.job, global_batch=batch)
    return estimate(unbounded(job), strategies, detail=False).step_s
