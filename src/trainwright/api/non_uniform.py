"""What `flexible` adds to a plan: non-uniform plans, and why they win."""

from collections.abc import Mapping

from rich.table import Table

from trainwright.api.fields import pair_texts
from trainwright.api.plan_problem import PlanProblem
from trainwright.api.plan_request import PlanRequest
from trainwright.errors import BadInput
from trainwright.plan.strategy import PRECISIONS
from trainwright.program.setting import Setting
from trainwright.report.tables import table
from trainwright.search.flexible import DEGREES, Flexible, find_flexible
from trainwright.search.space import knob_name
from trainwright.units import render_bytes, render_duration


def check_non_uniform(request: PlanRequest, problem: PlanProblem) -> None:
    """Raise for what a search beyond knobs does not do: it is for one batch, for time, and one precision."""
    question = problem.question
    if len(question.batches) > 1:
        raise BadInput("--flexible", "--batch-range", "compares plans at one batch", "state one with --batch")
    if question.objective != "time":
        raise BadInput(
            "--flexible", question.objective, "looks for the fastest plan", "leave out --objective"
        )
    for fix in pair_texts(request.fix):
        if knob_name(fix.partition("=")[0]) not in (*DEGREES, "precision"):
            rule = "fixes what --flexible chooses layer by layer"
            raise BadInput("--fix", fix, rule, "fix dp, tp, cp, pp, mb or precision, or leave out --flexible")
    if len(question.fixed["precision"]) > 1:
        raise BadInput("--flexible", "several precisions", "compares plans of one", "fix one precision")


def find_non_uniform(problem: PlanProblem) -> Flexible:
    """Search beyond knobs, within the degrees and the precision fixed; a checked problem."""
    question, job = problem.question, problem.question.job
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq,
        precision=PRECISIONS[question.fixed["precision"][0]],
    )  # fmt: skip
    return find_flexible(question, setting)


def flexible_line(found: Flexible) -> str:
    """How far the search went, and whether it was in vain."""
    searched = f"Beyond knobs: {found.drafted} plans drafted layer by layer, {found.simulated} simulated."
    return searched if found.plans else f"{searched} None is faster than the best strategy."


def flexible_table(found: Flexible, top: int) -> Table:
    """The plans that win, as `trainwright simulate` takes them, below the best strategy."""
    listed = [*([found.knobs] if found.knobs else []), *found.plans[:top]]
    rows = [[each.plan, render_duration(each.step_s), render_bytes(each.total_bytes)] for each in listed]
    return table("Simulated", ["plan", "step", "memory"], rows)


def flexible_rows(found: Flexible) -> list[dict[str, object]]:
    """The plans that win as rows of the CSV of strategies, with the numbers that a simulation has."""
    return [
        {"strategy": each.plan, "step_s": each.step_s, "total_bytes": each.total_bytes}
        for each in found.plans
    ]


def flexible_json(found: Flexible) -> Mapping[str, object]:
    """The plans as plain values."""
    plans = [{"plan": each, "reason": why} for each, why in zip(found.plans, found.reasons, strict=True)]
    return {"knobs": found.knobs, "plans": plans, "drafted": found.drafted, "simulated": found.simulated}
