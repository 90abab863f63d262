"""The best strategy of each of many clusters: of every strategy, or as `trainwright plan` finds it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import TrainwrightError
from trainwright.estimate.fleet import Sorted, at, estimate_all, sort_strategies
from trainwright.estimate.types import Array, Estimates, Job
from trainwright.plan.strategy import Strategies, join_strategies
from trainwright.search.check import check_constraints
from trainwright.search.find import Question, find_plans, fits, score, space_of
from trainwright.search.rank import rounded
from trainwright.search.space import count_strategies, strategy_blocks
from trainwright.sweep.columns import Pairs, needs_detail
from trainwright.sweep.constraints import Constraint
from trainwright.sweep.demands import Demands
from trainwright.sweep.ready import Ready
from trainwright.units import render_bytes

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
PAIRS = 1 << 17  # of cluster and strategy that are estimated together
_BLOCK = 1 << 14  # strategies that are
_KEPT = 1 << 18  # strategies of a space that are kept from one batch of clusters to the next
_TIE = 1e-9  # scores closer than this may be a tie
_KNOBS = tuple(field.name for field in fields(Strategies))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """For each of some clusters its best strategy, or why there is none; and how many were looked at."""

    strategies: Strategies  # where there is none, one that means nothing
    score: Array  # infinite where there is none
    step_s: Array
    why: NDArray[np.object_]
    evaluated: Ints
    fitting: Ints

    @property
    def found(self) -> Flags:
        """Where there is one."""
        return np.isfinite(self.score)


def kept_blocks(question: Question) -> tuple[Sorted, ...] | None:
    """The strategies of a question in blocks, or nothing if they are too many to be kept."""
    if count_strategies(space_of(question, question.batches[0])) > _KEPT:
        return None
    return tuple(ordered_blocks(question))


def ordered_blocks(question: Question) -> Iterator[Sorted]:
    """Every strategy of a question, in blocks, each in the order in which ties are broken."""
    for block in strategy_blocks(space_of(question, question.batches[0]), _BLOCK):
        for start in range(0, len(block), 2 * _BLOCK):
            part = block.take(slice(start, start + 2 * _BLOCK))
            keys = [getattr(part, knob) for knob in _KNOBS]
            yield sort_strategies(part.take(np.lexsort(keys[::-1])))


def batches(count: int, size: int) -> Iterator[Ints]:
    """So many clusters, in batches that make about `PAIRS` pairs with `size` strategies."""
    step = max(PAIRS // size, 1)
    return (np.arange(start, min(start + step, count)) for start in range(0, count, step))


def best_of_every(ready: Ready, job: Job, count: int, blocks: Iterable[Sorted], demands: Demands) -> Choice:
    """The best of every strategy for each of the `count` clusters of a job."""
    choice = _nothing(count)
    least, looked = np.full(count, np.inf), np.zeros(count, dtype=np.int64)
    for block in blocks:
        parts = []
        for rows in batches(count, len(block)):
            parts.append(_best_in_block(ready, at(job, rows), len(rows), block, demands.take(rows)))
        better = _joined([part for part, _ in parts])
        least = np.minimum(least, np.concatenate([need for _, need in parts]))
        choice = _better(choice, better)
        looked += len(block)
    missing = ~choice.found
    if missing.any():
        why = choice.why.copy()
        share = ready.question.filled_share
        capacity = np.broadcast_to(job.cluster.capacity_bytes, count)
        for row in np.flatnonzero(missing):
            why[row] = why_not(
                float(least[row]),
                float(capacity[row]),
                share,
                bool(choice.fitting[row]),
                demands.constraints,
            )
        choice = replace(choice, why=why)
    return replace(choice, evaluated=looked)


def why_not(
    need_bytes: float,
    capacity_bytes: float,
    filled_share: float,
    some_fit: bool,
    constraints: Sequence[Constraint],
) -> str:
    """Why no strategy was chosen, in words."""
    if some_fit:
        return "no strategy that fits meets " + " and ".join(f'"{each.text}"' for each in constraints)
    if need_bytes <= filled_share * capacity_bytes:
        return "every strategy leaves a stage empty or puts more on the host than it holds"
    return (
        f"nothing fits: at least {render_bytes(need_bytes)} on the fullest device, "
        f"which has {render_bytes(capacity_bytes)}, "
        f"of which {filled_share:.1%} may be filled at this OOM risk"
    )


def _best_in_block(
    ready: Ready, job: Job, count: int, block: Sorted, demands: Demands
) -> tuple[Choice, Array]:
    """The best strategy of a block for each cluster; and the fewest bytes that any of them needs."""
    result = estimate_all(job, count, block, detail=needs_detail(demands.names))
    size = len(block)
    where = np.repeat(np.arange(count), size)
    spread = at(job, where)
    fit = able = fits(spread, result, ready.question.filled_share)
    if demands.constraints:
        tiled = block.strategies.take(np.tile(np.arange(size), count))
        able = able & demands.take(where).allow(pairs_of(ready, spread, tiled, result))
    scores = np.where(able, score(ready.question, spread, result), np.inf).reshape(count, size)
    row, column = _first(scores, result.step_s.reshape(count, size))
    chosen = np.zeros(count, dtype=np.int64)
    chosen[row] = column
    every = np.arange(count)
    choice = replace(
        _nothing(count),
        strategies=block.strategies.take(chosen),
        score=scores[every, chosen],
        step_s=result.step_s.reshape(count, size)[every, chosen],
        fitting=fit.reshape(count, size).sum(axis=1),
    )
    return choice, result.total_bytes.reshape(count, size).min(axis=1)


def pairs_of(ready: Ready, job: Job, strategies: Strategies, result: Estimates) -> Pairs:
    """Strategies on clusters, as columns are made of them."""
    return Pairs(
        job=job, strategies=strategies, estimates=result, interval=ready.interval,
        dollars_per_kwh=ready.setting.dollars_per_kwh, filled_share=ready.question.filled_share,
    )  # fmt: skip


def _first(scores: Array, step_s: Array) -> tuple[Ints, Ints]:
    """Of each row with a finite score, the column of the least: among ties the faster, then the first."""
    least = scores.min(axis=1, keepdims=True)
    row, column = np.nonzero((scores <= least * (1.0 + _TIE)) & np.isfinite(least))
    keys = (column, rounded(step_s[row, column]), rounded(scores[row, column]), row)
    order = np.lexsort(keys)
    row, column = row[order], column[order]
    is_first = np.r_[True, row[1:] != row[:-1]] if len(row) else np.zeros(0, dtype=bool)
    return row[is_first], column[is_first]


def _better(one: Choice, other: Choice) -> Choice:
    """The better of two choices for each cluster, by score, then time, then each knob."""
    keys = [
        (rounded(one.score), rounded(other.score)),
        (rounded(one.step_s), rounded(other.step_s)),
        *((getattr(one.strategies, knob), getattr(other.strategies, knob)) for knob in _KNOBS),
    ]
    is_less, is_open = np.zeros(len(one.score), dtype=bool), np.ones(len(one.score), dtype=bool)
    for mine, theirs in keys:
        is_less |= is_open & (theirs < mine)
        is_open &= theirs == mine
    return Choice(
        strategies=Strategies(
            **{k: np.where(is_less, getattr(other.strategies, k), getattr(one.strategies, k)) for k in _KNOBS}
        ),
        score=np.where(is_less, other.score, one.score),
        step_s=np.where(is_less, other.step_s, one.step_s),
        why=one.why,
        evaluated=one.evaluated + other.evaluated,
        fitting=one.fitting + other.fitting,
    )


def _joined(parts: Sequence[Choice]) -> Choice:
    names = [field.name for field in fields(Choice) if field.name != "strategies"]
    return Choice(
        strategies=join_strategies(each.strategies for each in parts),
        **{name: np.concatenate([getattr(each, name) for each in parts]) for name in names},
    )


def _nothing(count: int) -> Choice:
    none = np.zeros(count, dtype=np.int64)
    return Choice(
        strategies=Strategies(**dict.fromkeys(_KNOBS, none)),
        score=np.full(count, np.inf), step_s=np.full(count, np.inf),
        why=np.full(count, "", dtype=object), evaluated=none, fitting=none,
    )  # fmt: skip


def best_as_planned(ready: Ready, job: Job, count: int) -> Choice:
    """The best strategy of each cluster as `trainwright plan` finds it, cluster by cluster."""
    return _joined([_planned(ready, at(job, np.int64(row))) for row in range(count)])


def _planned(ready: Ready, job: Job) -> Choice:
    question, nothing = replace(ready.question, job=job), _nothing(1)
    try:
        check_constraints(question)
        found = find_plans(question)
    except TrainwrightError as error:
        return replace(nothing, why=np.array([str(error)], dtype=object))
    counted = replace(nothing, evaluated=np.array([found.evaluated]), fitting=np.array([found.feasible]))
    if not len(found.best):
        need = float(found.nearest.total_bytes[0]) if len(found.nearest) else 0.0
        why = why_not(need, job.cluster.capacity_bytes, question.filled_share, False, ())
        return replace(counted, why=np.array([why], dtype=object))
    row = found.best.take(slice(0, 1))
    return replace(counted, strategies=row.strategies, score=row.score, step_s=row.step_s)
