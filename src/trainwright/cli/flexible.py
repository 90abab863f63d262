"""What `trainwright plan --flexible` adds: plans beyond knobs, and why they win."""

from collections.abc import Mapping

from trainwright.cli.request import Request
from trainwright.errors import BadInput
from trainwright.plan.strategy import PRECISIONS
from trainwright.program.setting import Setting
from trainwright.report import tables
from trainwright.search.flexible import Flexible, find_flexible
from trainwright.units import render_bytes, render_duration


def flexible_of(request: Request) -> Flexible:
    """Search beyond knobs; for one batch, and for time."""
    question = request.question
    if len(question.batches) > 1:
        raise BadInput("--flexible", "--batch-range", "compares plans at one batch", "state one with --batch")
    if question.objective != "time":
        raise BadInput(
            "--flexible", question.objective, "looks for the fastest plan", "leave out --objective"
        )
    job = question.job
    precision = PRECISIONS[question.fixed["precision"][0]]
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq,
        precision=precision,
    )  # fmt: skip
    return find_flexible(question, setting)


def show_flexible(found: Flexible, top: int) -> None:
    """Print the plans that win, as `trainwright simulate` takes them, each with its reason."""
    console = tables.open_console()
    searched = f"Beyond knobs: {found.drafted} plans drafted layer by layer, {found.simulated} simulated."
    if not found.plans:
        tables.show(console, searched, "None is faster than the best strategy.")
        return
    tables.show(console, searched)
    listed = [*([found.knobs] if found.knobs else []), *found.plans[:top]]
    rows = [[each.plan, render_duration(each.step_s), render_bytes(each.total_bytes)] for each in listed]
    tables.show(console, tables.table("Simulated", ["plan", "step", "memory"], rows))
    for reason in found.reasons[:top]:
        tables.show(console, tables.indented(console, reason))


def flexible_json(found: Flexible) -> Mapping[str, object]:
    """The plans as plain values."""
    plans = [{"plan": each, "reason": why} for each, why in zip(found.plans, found.reasons, strict=True)]
    return {"knobs": found.knobs, "plans": plans, "drafted": found.drafted, "simulated": found.simulated}
