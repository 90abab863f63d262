"""The answer to a request: the search's result, summarized."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainwright.cli.request import Request
from trainwright.cli.subject import cluster_json
from trainwright.economics.batch import batch_charge
from trainwright.estimate.types import Array
from trainwright.plan.strategy import ORDERS, Strategy
from trainwright.report.limits import limits
from trainwright.report.summary import Summary, summarize
from trainwright.report.whatif import WhatIf, what_if
from trainwright.search.check import check_constraints
from trainwright.search.find import Found, Question, find_front, find_plans
from trainwright.search.mappings import explain_order
from trainwright.search.miss import nearest_miss
from trainwright.search.rank import Candidates

_BY_TIME = ("time", "cost")  # objectives by which the faster of two plans on one cluster is the better


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Everything that is shown or written."""

    notes: tuple[str, ...]
    summaries: tuple[Summary, ...]
    front: tuple[Summary, ...]
    limits: tuple[str, ...]
    what_if: tuple[WhatIf, ...]
    compared: int  # the best plans that what-if answers choose from
    considered: int
    evaluated: int
    feasible: int
    request: Request


def answer_of(request: Request) -> Answer:
    """Search and summarize; InfeasiblePlan if nothing fits."""
    question = request.question
    check_constraints(question)
    found = find_plans(question)
    if not len(found.best):
        raise nearest_miss(question, found)
    summaries = _summaries(request, found.best.take(slice(0, question.top)))
    slower = float(_worth_s(question, found.roomier)[0] / _worth_s(question, found.best)[0])
    roomier_s = slower * summaries[0].step_s
    winner = summaries[0].strategy
    mapping: tuple[str, ...] = ()
    if winner.order != ORDERS[0]:
        mapping = (explain_order(replace(question.job, global_batch=summaries[0].global_batch), winner),)
    return Answer(
        notes=(*request.notes, _searched(found), *mapping),
        summaries=summaries,
        front=_summaries(request, find_front(question)) if request.pareto else (),
        limits=limits(summaries[0], roomier_s if question.objective == "time" else None),
        what_if=_what_if(question, found),
        compared=len(_rivals(question, found)),
        considered=found.considered,
        evaluated=found.evaluated,
        feasible=found.feasible,
        request=request,
    )


def _summaries(request: Request, chosen: Candidates) -> tuple[Summary, ...]:
    job = replace(request.question.job, global_batch=chosen.global_batch)
    return summarize(job, chosen.strategies, request.terms)


def _searched(found: Found) -> str:
    return (
        f"Considered {found.considered:,} strategies: {found.evaluated:,} evaluated, of which "
        f"{found.feasible:,} fit; the rest cannot be better"
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


def json_of(answer: Answer) -> Mapping[str, object]:
    """The answer as one tree of plain values."""
    job = answer.request.question.job
    return {
        "model": job.graph.name,
        "cluster": cluster_json(job.cluster),
        "stack": job.stack.name,
        "basis": {"efficiency": job.efficiency.basis, "stack": job.stack.basis},
        "objective": answer.request.question.objective,
        "notes": answer.notes,
        "considered": answer.considered,
        "evaluated": answer.evaluated,
        "feasible": answer.feasible,
        "plans": answer.summaries,
        "front": answer.front,
        "limits": answer.limits,
        "what_if": answer.what_if,
        "what_if_compared": answer.compared,
    }


def csv_rows(answer: Answer) -> list[dict[str, object]]:
    """The strategies, one row each: rank, knobs, predictions, parts of time and memory."""
    return [summary_row(rank, each) for rank, each in enumerate(answer.summaries, start=1)]


def summary_row(rank: int, summary: Summary) -> dict[str, object]:
    """One strategy as a row: rank, knobs, predictions, parts of time and memory."""
    knobs = {name: getattr(summary.strategy, name) for name in Strategy.__dataclass_fields__}
    numbers = (
        "global_batch", "seq", "devices", "step_s", "low_s", "high_s", "tokens_per_s",
        "tokens_per_s_per_device", "mfu", "hfu", "exposed_fraction", "total_bytes", "host_bytes", "power_w",
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
