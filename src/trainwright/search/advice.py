"""What to change about a strategy that is in use: one idea at a time, by what each gains."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from types import MappingProxyType

import numpy as np

from trainwright.cost.memory_risk import UNKNOWN_SPREAD, MemorySpread
from trainwright.errors import TrainwrightError
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.plan.expand import count_microbatches
from trainwright.plan.strategy import CHOICES, Strategies, Strategy, stack_strategies
from trainwright.search.find import Question, fits
from trainwright.search.recipe_comparison import RecipeComparison, compare_with_recipe
from trainwright.search.recipe_plan import with_recipe
from trainwright.search.recompute_choices import recompute_choices
from trainwright.search.space import Space, legal_strategies
from trainwright.search.usual import able_knobs
from trainwright.search.variants import find_winner

# Knobs that are one decision; precision is none of them, because it changes what is computed.
IDEAS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "parallel degrees": (
            "dp", "tp", "sp", "cp", "cp_kind", "pp", "vpp", "schedule", "ep", "etp", "shard", "order",
        ),
        "sharding of state (ZeRO)": ("zero", "shard"),
        "micro batch": ("micro_batch",),
        "pipeline schedule": ("schedule", "vpp"),
        "sequence parallelism": ("sp",),
        "how context is exchanged": ("cp_kind",),
        "recomputation": ("recompute", "recompute_layers"),
        "offloading": ("offload", "offload_layers"),
        "overlap of communication": ("overlap",),
    }
)  # fmt: skip
_LEAST = 0.002  # of the step: what is gained must be worth the change
_ROUNDING = 1.0 + 1e-12  # what is in use is within its own share


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A strategy with its step, the memory of its fullest device, and the risk that this is too much.

    `fits` says whether that memory is within the limit: of what is in use, whether the device has it.
    """

    strategy: Strategy
    step_s: float
    total_bytes: float
    fits: bool
    oom_risk: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """How much of usable memory a plan may be predicted to fill, and how measured memory compares with it."""

    spread: MemorySpread = UNKNOWN_SPREAD
    filled_share: float = 1.0

    def at_least(self, job: Job, used: "Rated") -> "MemoryLimit":
        """The limit where what is in use shows that as much memory can be filled."""
        share = used.total_bytes / job.cluster.capacity_bytes
        return replace(self, filled_share=max(self.filled_share, share)) if used.fits else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One idea carried out: what was changed, what comes of it, and the share of speed that it adds."""

    idea: str
    before: Rated
    after: Rated

    @property
    def gain(self) -> float:
        """How much faster: 0.1 is a tenth more tokens per second."""
        return self.before.step_s / self.after.step_s - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is in use, what each idea alone would gain, the best there is, and a way there.

    `alone` is in order of gain. `best` is what a search over all knobs finds, at the same batch and in the
    same precision; `steps` lead to it, one idea after another, at each the one that gains most and fits.
    """

    today: Rated
    alone: tuple[Change, ...]
    steps: tuple[Change, ...]
    best: Rated | None
    published: RecipeComparison | None = None  # the nearest published recipe against `best`, else `today`
    notes: tuple[str, ...] = ()  # on the job, and what matters of it and is not considered


def advise(job: Job, strategy: Strategy, *, limit: MemoryLimit | None = None) -> Advice:
    """The changes that make a strategy's step shorter, or make it fit, with what the software can run.

    A change may fill memory up to the limit, or as much as what is in use fills.
    """
    stated = limit or MemoryLimit()
    today = rate(job, stack_strategies([strategy]), replace(stated, filled_share=1.0))[0]
    limit = stated.at_least(job, today)
    alone = tuple(sorted(_changes(job, today, limit), key=_worth))
    known = [each for each in (today, *(change.after for change in alone)) if each.fits]
    question, recipe = with_recipe(_question(job, today, limit))
    best = _best(question, min((each.step_s for each in known), default=inf), limit)
    steps = tuple(_towards(job, today, best, limit)) if best is not None else ()
    plan = (best or today).strategy
    published = None
    if recipe:
        published = compare_with_recipe(
            job, recipe, plan, spread=limit.spread, filled_share=limit.filled_share
        )
    return Advice(today=today, alone=alone, steps=steps, best=best, published=published)


def rate(job: Job, strategies: Strategies, limit: MemoryLimit | None = None) -> list[Rated]:
    """Step, memory and OOM risk of some strategies."""
    found, limit = estimate(job, strategies, detail=False), limit or MemoryLimit()
    capacity_bytes = job.cluster.capacity_bytes
    within = fits(job, found, limit.filled_share * _ROUNDING)
    return [
        Rated(
            strategy=strategies[index], step_s=float(found.step_s[index]),
            total_bytes=float(found.total_bytes[index]), fits=bool(within[index]),
            oom_risk=limit.spread.oom_risk(float(found.total_bytes[index]), capacity_bytes),
        )
        for index in range(len(strategies))
    ]  # fmt: skip


def _worth(change: Change) -> tuple[bool, float]:
    return not change.after.fits, -change.gain


def _towards(job: Job, today: Rated, best: Rated, limit: MemoryLimit) -> Iterator[Change]:
    """From what is in use to the best: of the ideas in which they differ, the most gainful one next."""
    at, left = today, dict(IDEAS)
    while left:
        tried = [
            Change(idea=idea, before=at, after=after) for idea, after in _taken(job, at, best, left, limit)
        ]
        change = min(tried, key=_worth, default=None)
        if change is None:
            return
        yield change
        at = change.after
        del left[change.idea]


def _taken(
    job: Job, at: Rated, best: Rated, left: Mapping[str, tuple[str, ...]], limit: MemoryLimit
) -> Iterator[tuple[str, Rated]]:
    """Each idea carried out as the best has it, where that changes anything and makes sense."""
    for idea, knobs in left.items():
        try:
            taken = replace(at.strategy, **{knob: getattr(best.strategy, knob) for knob in knobs})
            if taken.shard and taken.dp * taken.cp % taken.shard:
                taken = replace(taken, shard=0)
            count_microbatches(taken, int(job.global_batch))
        except TrainwrightError:
            continue
        if taken != at.strategy and taken.devices == at.strategy.devices:
            yield idea, rate(job, stack_strategies([taken]), limit)[0]


def _changes(job: Job, at: Rated, limit: MemoryLimit) -> Iterator[Change]:
    """The best way to carry out each idea, where it gains."""
    for idea, knobs in IDEAS.items():
        others = _others(job, at.strategy, knobs)
        if others is None or not len(others):
            continue
        after = _fastest(job, others, limit)
        change = Change(idea=idea, before=at, after=after)
        if after.fits and (not at.fits or change.gain > _LEAST):
            yield change


def _fastest(job: Job, strategies: Strategies, limit: MemoryLimit) -> Rated:
    """The fastest within the limit; if none is, the one that needs least."""
    found = estimate(job, strategies, detail=False)
    within = fits(job, found, limit.filled_share * _ROUNDING)
    key = np.where(within, found.step_s, found.total_bytes * 1e12)
    return rate(job, strategies.take(np.array([int(np.argmin(key))])), limit)[0]


def _others(job: Job, strategy: Strategy, knobs: tuple[str, ...]) -> Strategies | None:
    """The legal strategies that differ in some knobs only; None if there are none."""
    held = {
        field.name: (_value(strategy, field.name),) for field in fields(Strategy) if field.name not in knobs
    }
    able = {knob: values for knob, values in able_knobs(job.stack).items() if knob in knobs}
    space = Space(
        graph=job.graph, devices=job.cluster.count, seq=job.seq, global_batch=int(job.global_batch),
        fixed=held | able, most={"vpp": job.stack.capability.most_vpp},
        recomputes=recompute_choices(job.graph, job.stack),
    )  # fmt: skip
    try:
        return legal_strategies(space)
    except TrainwrightError:
        return None


def _value(strategy: Strategy, knob: str) -> int:
    value = getattr(strategy, knob)
    return CHOICES[knob].index(value) if knob in CHOICES else int(value)


def _question(job: Job, today: Rated, limit: MemoryLimit) -> Question:
    """The best plan at the same batch and in the same precision."""
    fixed = able_knobs(job.stack) | {"precision": (_value(today.strategy, "precision"),)}
    return Question(
        job=job,
        batches=(int(job.global_batch),),
        fixed=fixed,
        most={"vpp": job.stack.capability.most_vpp},
        top=1,
        families=1,
        filled_share=limit.filled_share * _ROUNDING,
    )


def _best(question: Question, known_s: float, limit: MemoryLimit) -> Rated | None:
    """The plan that a search ranks first; the fastest, if a step is known that is shorter than that."""
    try:
        found, winner = find_winner(question)
    except TrainwrightError:
        return None
    if not len(winner):
        return None
    best = rate(question.job, winner.strategies, limit)[0]
    if known_s < best.step_s:
        best = rate(question.job, found.best.take(slice(0, 1)).strategies, limit)[0]
    return best
