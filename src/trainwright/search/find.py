"""The best strategies of a space: all of them considered, those that cannot win not evaluated.

What is left out is left out by proof, for the objectives that rise with time (time, cost, energy):

- a strategy takes at least as long as its layers and its pipeline do, however its state is sharded
  (`least_step_s`): the lowest bounds are evaluated first, those beyond what is kept never;
- gpipe needs as long as 1f1b and never less memory, so it is evaluated only if 1f1b is not allowed;
- recomputation and offloading are evaluated only where a strategy does not fit on a rung of `ladder.py`
  that is never slower, and only while it would be among the best on such a rung. What fits only with the
  help of expanded memory does not count as fitting there: a rung that needs less of it may be faster.

Memory head-room as the objective, and the Pareto front, evaluate every strategy.

Where a question asks for families (`families.py`), the best strategy of each of so many families is found
too, even if it is not among the best of all that are kept.

Where a question names a published recipe, its strategy is a candidate too, be it in the space or not.

Where a question asks for mappings, all orders of parallel axes on the network are evaluated of the best
strategies, and of the best with each set of degrees. That is no proof: a strategy far from the best in the
usual order may be the best in another.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd, inf

import numpy as np
from numpy.typing import NDArray

from trainwright.economics.batch import batch_charge
from trainwright.estimate.distinct import distinct
from trainwright.estimate.least import least_step_s
from trainwright.estimate.step import StrategyTables, build_tables, distinct_recomputes, estimate
from trainwright.estimate.types import Array, Estimates, Job
from trainwright.plan.legality import PlanFacts, discouraged, illegal, plan_facts
from trainwright.plan.strategy import RECOMPUTES, Strategies, Strategy, stack_strategies
from trainwright.search.ahead import work_ahead
from trainwright.search.families import family_codes, family_leaders
from trainwright.search.front import pareto_front
from trainwright.search.ladder import (
    Rung,
    bottom,
    higher,
    never_slower,
    on_rung,
    rung_knobs,
    rungs,
    without_gpipe,
)
from trainwright.search.least_first import LeastFirst
from trainwright.search.mappings import can_matter, mapped
from trainwright.search.rank import BOUNDED_BY_TIME, Candidates, best, by_memory, join_candidates, objective
from trainwright.search.recompute_choices import recompute_choices
from trainwright.search.space import KNOBS, Space, count_strategies, layer_count
from trainwright.search.unsharded import UnshardedBlock, unsharded_blocks

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
BENCH = 256  # the best strategies that are kept, beyond those asked for: what-if questions start from them
ROOMIER = 1.25  # the memory of the what-if question that only a search can answer
_MOST_PENDING = 1 << 18
_BLOCK = 1 << 17  # strategies that are estimated at a time
_FAR = 1.5  # times the best: beyond it no other mapping is tried, and no family is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched: a job at one or several global batches, with some knobs fixed or bounded.

    Batches are compared by what their tokens are worth if there is a critical batch, in tokens; else by the
    tokens alone. `dollars_per_kwh` comes on top of the price of an hour, where cost is the objective.
    """

    job: Job
    batches: tuple[int, ...]
    fixed: Mapping[str, tuple[int, ...]]
    most: Mapping[str, int]
    objective: str = "time"
    top: int = 10
    families: int = 0  # whose best strategy is found, besides the best strategies of all
    critical_batch_tokens: float = inf
    dollars_per_kwh: float = 0.0
    mappings: bool = False  # whether other orders of axes on the network are searched too
    filled_share: float = 1.0  # of usable memory that a plan may be predicted to fill
    published: Strategy | None = None  # of a recipe: a candidate, be it in the space or not


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found, best first, and how much it looked at.

    `roomier` is the best if devices had 1.25 times their memory, `riskier` the best of all that are predicted
    to fit, however full; `nearest` needs the fewest bytes of all that were evaluated. `feasible` counts among
    the evaluated.
    """

    kept: int  # how many of the best, at most
    best: Candidates
    roomier: Candidates
    riskier: Candidates
    nearest: Candidates
    leaders: Candidates  # the best of each family, best first, where families or mappings are searched
    considered: int
    evaluated: int
    feasible: int
    published: Candidates | None = None  # the recipe at each batch, where it fits and can be run

    @property
    def limit(self) -> float:
        """The score of the published recipe, which the first plan is not to exceed."""
        return float(self.published.score.min()) if self.published and len(self.published) else inf

    @property
    def bound(self) -> float:
        """The score that a strategy must reach to be among the best that are kept."""
        return float(self.best.score[-1]) if len(self.best) >= self.kept else np.inf


def find_plans(question: Question) -> Found:
    """The best strategies for a question, in a stable order; `best` is empty if nothing fits."""
    considered = sum(count_strategies(space_of(question, batch)) for batch in question.batches)
    found = replace(_nothing(), considered=considered, kept=max(question.top, BENCH))
    for batch in question.batches:
        job = replace(question.job, global_batch=batch)
        space = space_of(question, batch)
        if question.objective != "memory":
            space = without_gpipe(space)
        lowest = bottom(space) if question.objective != "memory" else None
        pending: list[Candidates] = []
        for unsharded in _unsharded(job, on_rung(space, lowest) if lowest else space):
            waves = LeastFirst(_least_score(question, job, unsharded.strategies))
            while len(rows := waves.next(_limit(question, found))):
                for block, result in _estimated(job, unsharded.blocks(rows, _BLOCK)):
                    found, candidates = _add(question, job, block, result, found)
                    if lowest:
                        unsettled = candidates.take(~_settled(question, job, candidates, result))
                        can_count = _can_count(question, found, unsettled, unsettled.least)
                        pending.append(unsettled.take(can_count))
                    if sum(map(len, pending)) > _MOST_PENDING:
                        found = _climb(question, job, space, join_candidates(pending), found)
                        pending = []
        if pending:
            found = _climb(question, job, space, join_candidates(pending), found)
    found = _with_published(question, found)
    return _with_mappings(question, found) if question.mappings else found


def fit_micro_batch(strategy: Strategy, batch: int) -> Strategy | None:
    """A strategy with the largest divisor of its micro batch that divides a batch; None if none does."""
    share, rest = divmod(batch, strategy.dp)
    return None if rest or not share else replace(strategy, micro_batch=gcd(strategy.micro_batch, share))


def published_plans(question: Question) -> list[Candidates]:
    """The published recipe of a question at each batch that it divides: empty where it does not fit."""
    listed = []
    for batch in question.batches if question.published else ():
        fitted = fit_micro_batch(question.published, batch) if question.published else None
        if fitted is not None:
            job = replace(question.job, global_batch=batch)
            candidates, fit = evaluate(question, job, stack_strategies([fitted]))
            listed.append(candidates.take(fit))
    return listed


def _with_published(question: Question, found: Found) -> Found:
    """What was found with a published recipe: added where it is better than the best, and kept for later."""
    listed = published_plans(question)
    for own in filter(len, listed):
        if not len(found.best) or own.score[0] < found.best.score[0] * (1.0 - 1e-9):
            job = replace(question.job, global_batch=int(own.global_batch[0]))
            found = replace(found, considered=found.considered + 1)
            found, _, _ = _evaluate(question, job, own.strategies, found)
    return replace(found, published=join_candidates(listed)) if listed else found


def _with_mappings(question: Question, found: Found) -> Found:
    """What was found with other orders of parallel axes of the best strategies."""
    if not can_matter(question.job) or question.objective == "memory" or "order" in question.fixed:
        return found
    ahead = found.leaders.take(slice(0, question.families))
    start = join_candidates([found.best, ahead, found.leaders.take(_of_degrees(found.leaders))])
    for batch in np.unique(start.global_batch).tolist():
        job = replace(question.job, global_batch=batch)
        chosen = start.strategies.take(start.global_batch == batch)
        strategies, _ = mapped(chosen.take(distinct(chosen, KNOBS)[0]))
        found = replace(found, considered=found.considered + len(strategies))
        strategies = strategies.take(runs(job, strategies))
        if len(strategies):
            found, _, _ = _evaluate(question, job, strategies, found)
    return found


def find_front(question: Question) -> Candidates:
    """The Pareto front of time per token against memory over every legal strategy that fits."""
    front = _nothing().best
    for batch in question.batches:
        job = replace(question.job, global_batch=batch)
        for unsharded in _unsharded(job, space_of(question, batch)):
            every = np.arange(len(unsharded.strategies))
            for block, result in _estimated(job, unsharded.blocks(every, _BLOCK)):
                fit = fits(job, result, question.filled_share)
                kept = _candidates(question, job, block, result).take(fit)
                front = pareto_front(join_candidates([front, kept]))
    return front


def _unsharded(job: Job, space: Space) -> Iterator[UnshardedBlock]:
    """Every strategy of a space that the job's stack may run, without its sharding."""
    return unsharded_blocks(space, job.stack.capability, build_facts(job))


def _estimated(job: Job, blocks: Iterable[Strategies]) -> Iterator[tuple[Strategies, Estimates]]:
    """Blocks with their estimates; what the stack cannot run is left out."""
    endless = unbounded(job)
    able = (block.take(runs(job, block)) for block in blocks)
    return work_ahead(lambda block: estimate(endless, block, detail=False), filter(len, able))


def runs(job: Job, strategies: Strategies) -> Flags:
    """Which strategies the job's stack can run at its batch (or each at its own) and does not warn of."""
    able, facts = job.stack.capability, build_facts(job)
    return np.asarray(~(illegal(able, strategies, facts) | discouraged(able, strategies, facts)))


def build_facts(job: Job) -> PlanFacts:
    """What the legality of the job's strategies depends on."""
    return plan_facts(
        job.graph, seq=job.seq, global_batch=job.global_batch, device_family=job.cluster.device.family,
        optimizer=job.stack.optimizer.name if job.stack.optimizer else "", grad_dtype=job.stack.grad_dtype,
    )  # fmt: skip


def _least_score(question: Question, job: Job, strategies: Strategies) -> Array:
    """Scores that no sharding of the strategies is better than; 0 for objectives without such a bound."""
    if question.objective not in BOUNDED_BY_TIME:
        return np.zeros(len(strategies))
    value = BOUNDED_BY_TIME[question.objective](job, least_step_s(unbounded(job), strategies))
    charge = batch_charge(int(job.global_batch) * job.seq, question.critical_batch_tokens)
    return np.asarray(value * charge * (1.0 - 1e-9))


def _limit(question: Question, found: Found) -> float:
    """The score beyond which a strategy on the lowest rung changes nothing of what is found."""
    if question.objective == "memory":
        return inf
    return max(found.bound, _reach(found) if question.mappings or question.families else 0.0)


def space_of(question: Question, batch: int) -> Space:
    """The space of a question at one global batch."""
    job = question.job
    return Space(
        graph=job.graph, devices=job.cluster.count, seq=job.seq,
        global_batch=batch, fixed=question.fixed, most=question.most,
        recomputes=recompute_choices(job.graph, job.stack),
        counts_offloaded_layers=job.stack.capability.counts_offloaded_layers,
    )  # fmt: skip


def unbounded(job: Job) -> Job:
    """The job on devices whose memory has no end: what is then infeasible is so for another reason.

    Of several tiers that hold tensors the last has no end, so that as much lies there as will.
    """
    memory = list(job.cluster.device.memory)
    last = max(n for n, tier in enumerate(memory) if n == 0 or tier.access == "direct")
    memory[last] = replace(memory[last], capacity_bytes=np.inf)
    device = replace(job.cluster.device, memory=tuple(memory))
    return replace(job, cluster=replace(job.cluster, device=device))


def fits(job: Job, result: Estimates, room: float = 1.0) -> Flags:
    """Which estimates (of an unbounded job) fit devices that have `room` times the job's memory."""
    capacity_bytes = job.cluster.capacity_bytes
    return np.asarray(result.feasible & (result.total_bytes <= room * capacity_bytes))


def _candidates(question: Question, job: Job, strategies: Strategies, result: Estimates) -> Candidates:
    own = score(question, job, result)
    return Candidates(
        strategies=strategies,
        global_batch=np.broadcast_to(np.int64(job.global_batch), len(strategies)),
        score=own,
        step_s=result.step_s,
        total_bytes=result.total_bytes,
        least=score(question, job, replace(result, step_s=result.step_s - result.tiers_s))
        if job.cluster.expanded
        else own,
    )


def score(question: Question, job: Job, result: Estimates) -> Array:
    """The objective, charged for what a large batch wastes: the same factor for all that share a batch."""
    value = objective(question.objective)(job, result)
    if question.objective == "memory":
        return value
    if question.objective == "cost" and question.dollars_per_kwh:
        value = value + objective("energy")(job, result) * (question.dollars_per_kwh / 3.6e6)
    return value * batch_charge(int(job.global_batch) * job.seq, question.critical_batch_tokens)


def _settled(question: Question, job: Job, candidates: Candidates, result: Estimates) -> Flags:
    """Which fit devices' own memory, so that nothing is gained by needing less."""
    own_bytes = question.filled_share * job.cluster.device.memory[0].usable_bytes
    return np.asarray(result.feasible & (candidates.total_bytes <= own_bytes))


def evaluate(question: Question, job: Job, strategies: Strategies) -> tuple[Candidates, Flags]:
    """Strategies as candidates, and which of them fit and can be run."""
    result = estimate(unbounded(job), strategies, detail=False)
    fit = fits(job, result, question.filled_share) & runs(job, strategies)
    return _candidates(question, job, strategies, result), fit


def _evaluate(
    question: Question, job: Job, strategies: Strategies, found: Found, tables: StrategyTables | None = None
) -> tuple[Found, Candidates, Flags]:
    """What was found with these strategies added, all of them as candidates, and which are settled.

    Tables of the unbounded job spare building them.
    """
    if tables is None:
        tables = build_tables(unbounded(job), strategies, distinct_recomputes(strategies))
    result = tables.estimate(strategies, detail=False)
    result = replace(result, feasible=result.feasible & runs(job, strategies))
    found, candidates = _add(question, job, strategies, result, found)
    return found, candidates, _settled(question, job, candidates, result)


def _add(
    question: Question, job: Job, strategies: Strategies, result: Estimates, found: Found
) -> tuple[Found, Candidates]:
    """What was found with these strategies added, and all of them as candidates."""
    candidates = _candidates(question, job, strategies, result)
    share = question.filled_share
    fit, risky, roomy = (fits(job, result, room) for room in (share, 1.0, ROOMIER * share))
    good = fit & (candidates.score <= found.bound)
    nearest = found.nearest
    if not len(found.best) and result.feasible.any():
        least = result.feasible & (result.total_bytes <= result.total_bytes[result.feasible].min())
        nearest = by_memory(join_candidates([nearest, candidates.take(least)]))
    found = replace(
        found,
        best=best(join_candidates([found.best, candidates.take(good)]), found.kept),
        roomier=best(join_candidates([found.roomier, candidates.take(_fastest(candidates, roomy))]), 1),
        riskier=best(join_candidates([found.riskier, candidates.take(_fastest(candidates, risky))]), 1),
        nearest=nearest,
        leaders=_leaders(question, found, candidates, fit),
        evaluated=found.evaluated + len(strategies),
        feasible=found.feasible + int(fit.sum()),
    )
    return found, candidates


def _leaders(question: Question, found: Found, candidates: Candidates, fit: Flags) -> Candidates:
    """The best of each family, of those not far from the best of all."""
    if not (question.mappings or question.families):
        return found.leaders
    near = candidates.take(fit & (candidates.score <= _reach(found)))
    return family_leaders(join_candidates([found.leaders, near])) if len(near) else found.leaders


def _reach(found: Found) -> float:
    return _FAR * float(found.best.score[0]) if len(found.best) else inf


def _of_degrees(leaders: Candidates) -> Ints:
    """The first with each set of degrees."""
    if not len(leaders):
        return np.zeros(0, dtype=np.int64)
    return distinct(leaders.strategies, ("dp", "tp", "cp", "pp", "ep"))[0]


def _can_count(question: Question, found: Found, candidates: Candidates, least: Array) -> Flags:
    """Which may be among the best, or lead one of the families asked for, if none is faster than `least`."""
    kept = np.asarray(least <= found.bound)
    known = found.leaders.take(slice(0, question.families))
    limit = min(_reach(found), float(known.score[-1]) if len(known) == question.families != 0 else inf)
    if not question.families or limit <= found.bound or not len(candidates):
        return kept
    codes = family_codes(join_candidates([candidates, found.leaders]))
    led = np.full(int(codes.max()) + 1, inf)  # by family: the score of its leader
    led[codes[len(least) :]] = found.leaders.score
    return np.asarray(kept | ((least <= limit) & (least < led[codes[: len(least)]])))


def _fastest(candidates: Candidates, among: Flags) -> Flags:
    if not among.any():
        return among
    return np.asarray(among & (candidates.score <= candidates.score[among].min()))


def _nothing() -> Found:
    empty = np.zeros(0)
    none = np.zeros(0, dtype=np.int64)
    strategies = Strategies(**dict.fromkeys(Strategies.__dataclass_fields__, none))
    no = Candidates(
        strategies=strategies, global_batch=none, score=empty, step_s=empty, total_bytes=empty, least=empty
    )
    return Found(
        kept=BENCH, best=no, roomier=no, riskier=no, nearest=no, leaders=no, considered=0, evaluated=0,
        feasible=0,
    )  # fmt: skip


def _climb(question: Question, job: Job, space: Space, pending: Candidates, found: Found) -> Found:
    """What was found with strategies that do not fit on the bottom rung put on higher ones."""
    pending = pending.take(_can_count(question, found, pending, pending.least))
    if not len(pending):
        return found
    recomputes = np.unique([RECOMPUTES.index("none"), *(rung.recompute for rung in rungs(space))])
    tables = build_tables(unbounded(job), pending.strategies, recomputes)
    scores: dict[Rung, Array] = {}
    fitted: dict[Rung, Flags] = {}
    for rung in higher(space):
        below = [each for each in scores if never_slower(each, rung)]
        settled = np.logical_or.reduce(
            [np.zeros(len(pending), dtype=bool), *(fitted[each] for each in below)]
        )
        least = np.maximum.reduce([pending.least, *(scores[each] for each in below)])
        legal = max(rung.layers, rung.offload_layers) <= _layers_per_stage(job, pending.strategies)
        rows = np.flatnonzero(~settled & _can_count(question, found, pending, least) & legal)
        scores[rung], fitted[rung] = pending.least.copy(), np.zeros(len(pending), dtype=bool)
        if not len(rows):
            continue
        chosen = _with(pending.strategies.take(rows), **rung_knobs(rung))
        own = tables.take(rows)
        found, candidates, settled = _evaluate(question, job, chosen, found, own)
        scores[rung][rows], fitted[rung][rows] = candidates.least, settled
        if rung.counted and job.stack.capability.recompute_layers != "every":
            found = _count_layers(question, job, own, candidates, least[rows], found, "recompute_layers")
        if rung.counts_offloaded:  # few degrees and recomputations go with it
            able = runs(job, chosen)
            some = candidates.take(able), least[rows[able]]
            found = _count_layers(question, job, own.take(able), *some, found, "offload_layers")
    return found


def _count_layers(
    question: Question,
    job: Job,
    tables: StrategyTables,
    full: Candidates,
    least: Array,
    found: Found,
    knob: str,
) -> Found:
    """What was found with fewer layers recomputed or offloaded, where that fits the devices or roomier ones;
    where they have expanded memory, also what fits without it.

    `least` are scores that no number of layers beats.
    """
    capacity_bytes, share = job.cluster.capacity_bytes, question.filled_share
    own = job.cluster.device.memory[0].usable_bytes / capacity_bytes
    risky = knob == "offload_layers" and share < 1.0  # what fits at a higher risk is stated too
    rooms = (*((own * share,) if own < 1.0 else ()), share, *((1.0,) if risky else ()), ROOMIER * share)
    for room in rooms:
        beyond = found.riskier if room == 1.0 else found.roomier
        if room <= share or not len(beyond):
            counts = _can_count(question, found, full, least)
        else:
            counts = least <= float(beyond.score[0])
        rows = (full.total_bytes <= room * capacity_bytes) & counts
        if rows.any():
            some = tables.take(rows), full.strategies.take(rows)
            found = _fewest_layers(question, job, *some, room, found, knob)
    return found


def _with(strategies: Strategies, **values: int | Ints) -> Strategies:
    count = len(strategies)
    columns = {name: np.broadcast_to(np.asarray(v, dtype=np.int64), count) for name, v in values.items()}
    return replace(strategies, **columns)


def _fewest_layers(
    question: Question,
    job: Job,
    tables: StrategyTables,
    strategies: Strategies,
    room: float,
    found: Found,
    knob: str,
) -> Found:
    """What was found with the fewest recomputed or offloaded layers per stage that let each strategy fit.

    The strategies fit with every layer recomputed or offloaded. Time rises and memory falls with the count,
    so the fewest is best, and bisection finds it. (What the host holds falls with fewer layers offloaded.)
    """
    by_chunk = knob == "recompute_layers" and job.stack.capability.recompute_layers == "chunk"
    unit = strategies.vpp if by_chunk else np.ones_like(strategies.vpp)
    layers = _layers_per_stage(job, strategies) // unit  # in units that can be stated
    if knob == "offload_layers":
        layers = layers - 1  # the last one stays anyway: its backward follows at once
    low, high = np.zeros(len(strategies), dtype=np.int64), layers.copy()  # does not fit (or none), fits
    while (open_ := high - low > 1).any():
        rows = np.flatnonzero(open_)
        middle = (low[rows] + high[rows]) // 2
        counted = _with(strategies.take(rows), **{knob: middle * unit[rows]})
        needed = tables.take(rows).estimate(counted, detail=False).total_bytes
        fit = needed <= room * job.cluster.capacity_bytes
        high[rows[fit]] = middle[fit]
        low[rows[~fit]] = middle[~fit]
    fewest = _with(strategies, **{knob: high * unit})
    fewer = (high < layers) & (high > 0)
    if room > question.filled_share:  # what fits without the room was found without it
        fewer &= ~fits(job, tables.estimate(fewest, detail=False), question.filled_share)
    if not fewer.any():
        return found
    # The space has each with every layer recomputed or offloaded: these are beyond it.
    found = replace(found, considered=found.considered + int(fewer.sum()))
    return _evaluate(question, job, fewest.take(fewer), found, tables.take(fewer))[0]


def _layers_per_stage(job: Job, strategies: Strategies) -> Ints:
    return np.asarray(-(-layer_count(job.graph) // strategies.pp), dtype=np.int64)
