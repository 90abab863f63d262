"""The best strategies of a search, summarized."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainwright.api.batch import batch_note, batch_tree
from trainwright.api.plan_problem import PlanProblem
from trainwright.api.subject import cluster_json
from trainwright.economics.batch import batch_charge
from trainwright.estimate.types import Array
from trainwright.plan.strategy import ORDERS, Strategy
from trainwright.report.limits import limits
from trainwright.report.summary import Summary, summarize
from trainwright.report.whatif import WhatIf, what_if
from trainwright.search.batch_limit import BatchLimit, batch_limit
from trainwright.search.check import check_constraints
from trainwright.search.families import WITHIN, PlanFamily
from trainwright.search.find import Found, Question, find_front
from trainwright.search.mappings import explain_order
from trainwright.search.miss import nearest_miss
from trainwright.search.rank import Candidates, join_candidates
from trainwright.search.recipe_comparison import RecipeComparison, compare_with_recipe
from trainwright.search.recipe_search import RecipeSearch, TakenState, find_with_recipe
from trainwright.search.variants import find_families

_WITHIN = f"{WITHIN:.0%}".replace("%", " %")
_BY_TIME = ("time", "cost")  # objectives by which the faster of two plans on one cluster is the better


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVariant:
    """A strategy of a family that is within 1 % of the family's best."""

    text: str
    step_s: float
    total_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPlans:
    """Everything that is shown or written.

    `summaries` are the representatives of families, and `variants` has the equivalent strategies of each, the
    representative first. Where every strategy is listed by itself, `variants` is empty.
    """

    notes: tuple[str, ...]
    summaries: tuple[Summary, ...]
    variants: tuple[tuple[PlanVariant, ...], ...]
    front: tuple[Summary, ...]
    limits: tuple[str, ...]
    batch_limit: BatchLimit | None
    published: RecipeComparison | None  # the nearest published recipe, if one is close enough
    taken: TakenState | None  # optimizer state of a recipe that the plans have, where the user states none
    what_if: tuple[WhatIf, ...]
    compared: int  # the best plans that what-if answers choose from
    considered: int
    evaluated: int
    feasible: int
    problem: PlanProblem

    @property
    def variant_counts(self) -> tuple[int, ...]:
        """How many equivalent strategies each family has, its representative counted."""
        return tuple(map(len, self.variants))

    @property
    def winners(self) -> tuple[str, ...]:
        """The best strategy and those equivalent to it, as text."""
        listed = tuple(each.text for each in self.variants[0]) if self.variants else ()
        return listed or (str(self.summaries[0].strategy),)

    @property
    def best_line(self) -> str:
        """The best strategy, and how many are equivalent to it."""
        count = len(self.winners)
        shown = f" ({count} variants within {_WITHIN})" if count > 1 else ""
        return f"Best: {self.summaries[0].strategy}{shown}"


def rank_plans(problem: PlanProblem) -> RankedPlans:
    """Search and summarize; InfeasiblePlan if nothing fits.

    The problem of the answer has the optimizer state of its plans, which may be a published recipe's.
    """
    check_constraints(problem.question)
    search = find_with_recipe(problem.question)
    question, found = search.question, search.found
    problem = replace(problem, question=replace(problem.question, job=question.job))
    if not len(found.best):
        raise nearest_miss(question, found)
    families = find_families(question, found) if question.families else ()
    chosen = join_candidates([each.representative for each in families]) if families else found.best
    summaries = _summaries(problem, chosen.take(slice(0, question.top)))
    slower = float(_worth_s(question, found.roomier)[0] / _worth_s(question, found.best)[0])
    roomier_s = slower * summaries[0].step_s
    winner = summaries[0].strategy
    mapping: tuple[str, ...] = ()
    if winner.order != ORDERS[0]:
        mapping = (explain_order(replace(question.job, global_batch=summaries[0].global_batch), winner),)
    limited = batch_limit(question, found.best)
    causes = limits(summaries[0], roomier_s if question.objective == "time" else None)
    return RankedPlans(
        notes=(
            *problem.notes,
            *_taken(question, search.taken),
            *_best_batch(question, summaries[0]),
            _searched(question, found),
            *_ranked(question),
            *mapping,
            *_riskier(problem, found),
        ),
        summaries=summaries,
        variants=tuple(map(_variants, families)),
        front=_summaries(problem, find_front(question)) if problem.pareto else (),
        limits=(str(limited), *causes) if limited else causes,
        batch_limit=limited,
        published=_published(problem, search, summaries[0]),
        taken=search.taken,
        what_if=_what_if(question, found),
        compared=len(_rivals(question, found)),
        considered=found.considered,
        evaluated=found.evaluated,
        feasible=found.feasible,
        problem=problem,
    )


def _summaries(problem: PlanProblem, chosen: Candidates) -> tuple[Summary, ...]:
    job = replace(problem.question.job, global_batch=chosen.global_batch)
    return summarize(job, chosen.strategies, problem.terms)


def _best_batch(question: Question, best: Summary) -> tuple[str, ...]:
    """A note on the batch of the best plan, where several were compared."""
    if len(question.batches) == 1:
        return ()
    return (batch_note(best.global_batch, best.seq, "the best of those compared"),)


def _riskier(problem: PlanProblem, found: Found) -> tuple[str, ...]:
    """What the fastest plan that is predicted to fit, at any risk, would gain."""
    question = problem.question
    if question.objective == "memory" or not len(found.riskier):
        return ()
    gain = float(_worth_s(question, found.best)[0] / _worth_s(question, found.riskier)[0] - 1.0)
    if gain < 0.002:
        return ("No plan with a higher OOM risk is faster",)
    spread, needed = problem.terms.memory_spread, float(found.riskier.total_bytes[0])
    risk = spread.oom_risk(needed, question.job.cluster.capacity_bytes)
    return (f"{found.riskier.strategies[0]} would be {gain:.1%} faster at an OOM risk of {risk:.0%}",)


def _taken(question: Question, taken: TakenState | None) -> tuple[str, ...]:
    """A note on the optimizer state of a recipe that the plans have, and how to forbid it."""
    if taken is None:
        return ()
    why = "nothing fits with the stack's own"
    if taken.gain is not None:
        word = "slower" if question.objective in _BY_TIME else "worse"
        why = f"with the stack's own the best plan is {taken.gain / (1.0 + taken.gain):.1%} {word}"
    forbid = "--grad-dtype fp32" if taken.grad_dtype == "bf16" else "--optimizer adamw"
    return (f"Optimizer state of the recipe {taken.recipe}: {taken.words}; {why} (forbid it: {forbid})",)


def _published(problem: PlanProblem, search: RecipeSearch, winner: Summary) -> RecipeComparison | None:
    """The nearest published recipe compared with the first plan, at its batch."""
    if search.recipe is None:
        return None
    return compare_with_recipe(
        replace(problem.question.job, global_batch=winner.global_batch), search.recipe, winner.strategy,
        spread=problem.terms.memory_spread, filled_share=problem.question.filled_share,
        taken=search.taken.words if search.taken else "",
    )  # fmt: skip


def _searched(question: Question, found: Found) -> str:
    why = "not supported by the stack" if question.objective == "memory" else "pruned by bounds"
    pruned = f", the rest {why}" if found.evaluated < found.considered else ""
    evaluated = f"{found.evaluated:,} evaluated ({found.feasible:,} fit)"
    return f"Searched {found.considered:,} strategies, {evaluated}{pruned}"


def _ranked(question: Question) -> tuple[str, ...]:
    """A note on what the rows are."""
    if not question.families:
        return ()
    first = "fastest" if question.objective == "time" else "best"
    return (
        f"Ranked by {question.objective}, one row per set of parallel degrees and sharding; variants within "
        f"{_WITHIN} of its {first} are one row (see --all-variants)",
    )


def _variants(family: PlanFamily) -> tuple[PlanVariant, ...]:
    variants = family.variants
    columns = (family.strategies, variants.step_s.tolist(), variants.total_bytes.tolist())
    return tuple(
        PlanVariant(text=text, step_s=step_s, total_bytes=total_bytes)
        for text, step_s, total_bytes in zip(*columns, strict=True)
    )


def _rivals(question: Question, found: Found) -> Candidates:
    """The plans that what-if answers choose from: the fastest is the best only if time is what counts."""
    return found.best if question.objective in _BY_TIME else found.best.take(slice(0, 1))


def _what_if(question: Question, found: Found) -> tuple[WhatIf, ...]:
    """Each resource answered by the best plans kept (a lower bound); memory capacity by the search itself."""
    rivals, roomier = _rivals(question, found), found.roomier
    answers = what_if(question.job, rivals.strategies, rivals.global_batch, _charge(question, rivals))
    faster = max(float(_worth_s(question, found.best)[0] / _worth_s(question, roomier)[0] - 1.0), 0.0)
    room = WhatIf(resource="memory capacity", faster=faster, strategy=roomier.strategies[0])
    return (*answers[:2], room, *answers[2:])


def _worth_s(question: Question, candidates: Candidates) -> Array:
    """Seconds of each candidate for what a sequence is worth at a small batch."""
    return candidates.step_s / candidates.global_batch * _charge(question, candidates)


def _charge(question: Question, candidates: Candidates) -> Array:
    """How many tokens each candidate's batch needs for the worth of one."""
    tokens = [int(batch) * question.job.seq for batch in candidates.global_batch]
    return np.array([batch_charge(each, question.critical_batch_tokens) for each in tokens])


def ranked_tree(answer: RankedPlans) -> Mapping[str, object]:
    """The answer as one tree of plain values."""
    job = answer.problem.question.job
    return {
        "model": job.graph.name,
        "cluster": cluster_json(job.cluster),
        "stack": job.stack.name,
        "optimizer": job.stack.optimizer.name if job.stack.optimizer else None,
        "grad_dtype": job.stack.grad_dtype or None,
        "expert_imbalance": job.stack.stated_imbalance or None,
        "state_of_recipe": answer.taken,
        "basis": {"efficiency": job.efficiency.basis, "stack": job.stack.basis},
        "anchor": answer.problem.anchor,
        "objective": answer.problem.question.objective,
        "notes": answer.notes,
        "batch": _batch_of(answer),
        "allowed_bytes": answer.problem.question.filled_share * job.cluster.capacity_bytes,
        "considered": answer.considered,
        "evaluated": answer.evaluated,
        "feasible": answer.feasible,
        "plans": _plan_trees(answer),
        "front": answer.front,
        "limits": answer.limits,
        "published_recipe": answer.published,
        "what_if": answer.what_if,
        "what_if_compared": answer.compared,
    }


def _plan_trees(answer: RankedPlans) -> Sequence[object]:
    """The plans; each representative with the number of its family's variants, and what these are."""
    if not answer.variants:
        return answer.summaries
    names = Summary.__dataclass_fields__
    return [
        {name: getattr(each, name) for name in names} | {"variants": len(own), "variant_strategies": own}
        for each, own in zip(answer.summaries, answer.variants, strict=True)
    ]


def _batch_of(answer: RankedPlans) -> Mapping[str, object]:
    """The batches that were searched, what was asked for, and a better one if the batch is what limits."""
    chosen, limited = answer.problem.batch, answer.batch_limit
    better = {"sequences": limited.better, "faster": limited.faster} if limited else None
    return {**batch_tree(chosen.batches, chosen.target), "better": better}


def ranked_rows(answer: RankedPlans) -> list[dict[str, object]]:
    """The strategies, one row each: rank, knobs, predictions, parts of time and memory, count of variants."""
    rows = [summary_row(rank, each) for rank, each in enumerate(answer.summaries, start=1)]
    if not answer.variants:
        return rows
    return [row | {"variants": count} for row, count in zip(rows, answer.variant_counts, strict=True)]


def summary_row(rank: int, summary: Summary) -> dict[str, object]:
    """One strategy as a row: rank, knobs, predictions, parts of time and memory."""
    knobs = {name: getattr(summary.strategy, name) for name in Strategy.__dataclass_fields__}
    numbers = (
        "global_batch", "seq", "devices", "step_s", "low_s", "high_s", "tokens_per_s",
        "tokens_per_s_per_device", "mfu", "hfu", "exposed_fraction", "total_bytes", "low_bytes", "high_bytes",
        "oom_risk", "host_bytes", "power_w",
        "joules_per_token", "tokens_per_joule", "effective_tokens_per_s",
    )  # fmt: skip
    takes = ("days", "steady_days", "device_hours", "dollars", "dollars_per_million_tokens", "kwh", "co2e_kg")
    budget = summary.budget
    return (
        {"rank": rank, "strategy": str(summary.strategy)}
        | knobs
        | {name: getattr(summary, name) for name in numbers}
        | {"goodput": summary.goodput.share if summary.goodput else 1.0, "budget_tokens": budget.tokens}
        | {name: getattr(budget, name) for name in takes}
        | {f"time_{name}_s": value for name, value in summary.time_s.items()}
        | {f"communication_{name}_s": value for name, value in summary.communication_s.items()}
        | {f"memory_{name}_bytes": value for name, value in summary.memory_bytes.items()}
    )
