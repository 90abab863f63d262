"""`trainwright plan` of a recommender: how its tables lie on devices, how many instances share a cluster."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.cli.money import parse_prices
from trainwright.cli.subject import (
    SAMPLES_PER_DEVICE,
    Subject,
    parse_batch,
    parse_subject,
)
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.types import Job
from trainwright.report import recommender as shown
from trainwright.report.files import render_csv, render_json, save_text
from trainwright.report.recommender import TablesSummary, summarize_laid
from trainwright.search.tables import lay_instances, lay_tables
from trainwright.search.usual import check_precision
from trainwright.units import parse_whole, render_bytes

# Options that speak of layers, tokens or sequences, with what they are if nobody states them.
_OTHERS: Mapping[str, object] = {
    "batch_tokens": None, "batch_range": None, "seq": None, "objective": "time", "fix": [], "pareto": False,
    "flexible": False, "tokens": None, "target_loss": None, "critical_batch": None, "max_days": None,
    "max_dollars": None, "devices_range": None,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesAnswer:
    """Everything that is shown or written."""

    notes: tuple[str, ...]
    plans: tuple[TablesSummary, ...]  # on all devices
    instances: tuple[TablesSummary, ...]  # the best of each size


def run(options: argparse.Namespace) -> int:
    """Lay tables, then show."""
    answer, job = answer_of(options)
    tree = json_of(answer, job)
    if options.csv:
        rows = [_row(each) for each in (*answer.plans, *answer.instances)]
        save_text(Path(options.csv), render_csv(list(rows[0]), rows))
    if options.json == "-":
        print(render_json(tree), end="")
        return 0
    if options.json:
        save_text(Path(options.json), render_json(tree))
    _show(answer, quiet=options.quiet)
    return 0


def answer_of(options: argparse.Namespace) -> tuple[TablesAnswer, Job]:
    """The best shardings of all devices, and the best of instances of each size."""
    if options.algorithm is not None:
        rule = "is not for recommenders, whose tables no island could hold alone"
        raise BadInput("--algorithm", options.algorithm, rule, "leave it out")
    for name, default in _OTHERS.items():
        if (value := getattr(options, name, default)) != default:
            option = f"--{name.replace('_', '-')}"
            raise BadInput(option, value, "does not apply to a recommender", "leave it out")
    subject = parse_subject(options)
    prices = parse_prices(options, subject.cluster)
    batch, batch_note = parse_batch(options, subject)
    precision = options.precision or subject.cluster.device.usual_precision
    check_precision(precision, subject.cluster.device)
    job = Job(
        graph=subject.graph, cluster=prices.cluster, stack=subject.stack, efficiency=subject.efficiency,
        seq=1, global_batch=batch,
    )  # fmt: skip
    each = _samples_per_device(batch, subject)
    laid = lay_tables(job, job.cluster.count, each, precision)
    instances = lay_instances(job, each, precision)
    if not instances:
        least = float(laid.estimates.total_bytes.min()) if len(laid.shardings) else 0.0
        room = job.cluster.capacity_bytes
        raise InfeasiblePlan(
            f"nothing fits: {job.graph.name} on {job.cluster.count} {job.cluster.device.name} needs "
            f"{render_bytes(least)} on the fullest device, which has {render_bytes(room)}; use more devices, "
            "or devices with more memory"
        )
    top = parse_whole(options.top, "--top")
    answer = TablesAnswer(
        notes=(subject.title, batch_note, f"Tables and MLPs in {precision}", prices.note, *subject.basis),
        plans=summarize_laid(job, laid, subject.interval, top),
        instances=tuple(summarize_laid(job, one, subject.interval, 1)[0] for one in instances),
    )
    return answer, job


def _samples_per_device(batch: int, subject: Subject) -> int:
    if batch % subject.cluster.count:
        rule = f"does not divide by {subject.cluster.count} devices"
        raise BadInput("--batch", batch, rule, f"write {SAMPLES_PER_DEVICE * subject.cluster.count}")
    return batch // subject.cluster.count


def json_of(answer: TablesAnswer, job: Job) -> Mapping[str, object]:
    """The answer as one tree of plain values."""
    cluster = job.cluster
    return {
        "model": job.graph.name,
        "cluster": {
            "device": cluster.device.name, "count": cluster.count, "network": cluster.network.name,
        },
        "stack": job.stack.name,
        "notes": answer.notes,
        "plans": answer.plans,
        "instances": answer.instances,
    }  # fmt: skip


def _row(each: TablesSummary) -> dict[str, object]:
    plain = (
        "devices", "instances", "global_batch", "step_s", "low_s", "high_s", "samples_per_s", "mfu",
        "exposed_fraction", "total_bytes", "power_w", "dollars_per_billion_samples", "joules_per_sample",
    )  # fmt: skip
    return (
        {"plan": each.plan}
        | {name: getattr(each, name) for name in plain}
        | {f"time_{name}_s": value for name, value in each.time_s.items()}
        | {f"memory_{name}_bytes": value for name, value in each.memory_bytes.items()}
    )


def _show(answer: TablesAnswer, *, quiet: bool) -> None:
    from trainwright.report import tables

    console = tables.open_console()
    if not quiet:
        tables.show(console, *answer.notes)
    best = max((*answer.plans[:1], *answer.instances), key=lambda each: each.samples_per_s)
    if answer.plans:
        tables.show(console, shown.shardings_table(answer.plans))
    else:
        tables.show(console, "No sharding over all devices fits or divides them.")
    tables.show(console, shown.instances_table(answer.instances))
    if quiet:
        return
    lines = [tables.indented(console, line) for line in shown.headline(best)]
    tables.show(console, f"Best: {best.instances} x {best.plan}", *lines, "", *shown.parts_tables(best))
