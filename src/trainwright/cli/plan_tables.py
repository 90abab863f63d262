"""`trainwright plan` of a recommender: how its tables lie on devices, how many instances share a cluster."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.cli.batch import SAMPLES_PER_DEVICE, parse_batch
from trainwright.cli.money import parse_prices
from trainwright.cli.subject import Subject, cluster_json, parse_subject
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.types import Job
from trainwright.report import recommender as shown
from trainwright.report.files import render_csv
from trainwright.report.recommender import TablesSummary, TablesTerms, summarize_laid
from trainwright.search.tables import lay_instances, lay_tables
from trainwright.search.usual import check_precision
from trainwright.units import parse_whole, render_bytes

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesAnswer:
    """Everything that is shown or written."""

    job: Job
    notes: tuple[str, ...]
    plans: tuple[TablesSummary, ...]  # on all devices
    instances: tuple[TablesSummary, ...]  # the best of each size

    @property
    def best(self) -> TablesSummary:
        """What gets most samples from the cluster."""
        return max((*self.plans[:1], *self.instances), key=lambda each: each.samples_per_s)

    def tree(self) -> Mapping[str, object]:
        """As one tree of plain values."""
        cluster = self.job.cluster
        return {
            "model": self.job.graph.name,
            "cluster": cluster_json(cluster),
            "stack": self.job.stack.name,
            "notes": self.notes,
            "plans": self.plans,
            "instances": self.instances,
        }  # fmt: skip

    def csv(self) -> str:
        """A row for each sharding, then for the best of each size of an instance."""
        rows = [tables_row(each) for each in (*self.plans, *self.instances)]
        return render_csv(list(rows[0]), rows)

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of it."""
        from trainwright.report.recommender_figures import recommender_figures

        return tuple(recommender_figures(self.plans, self.instances))

    def page(self, asked: str) -> "Page":
        """The report."""
        from trainwright.cli.pages import UNDATED, table_rows
        from trainwright.report.page import Page

        best = self.best
        shardings = [shown.shardings_table(self.plans)] if self.plans else []
        listed = [*shardings, shown.instances_table(self.instances), *shown.parts_tables(best)]
        return Page(
            title=self.notes[0], question=("How should the tables lie on this cluster?", self.notes[1]),
            answer=(f"Best: {best.instances} x {best.plan}", *shown.headline(best)), figures=self.figures(),
            tables=table_rows(listed), assumptions=(*self.notes[2:], UNDATED), command=asked,
        )  # fmt: skip

    def show(self, *, quiet: bool) -> None:
        """Print it."""
        _show(self, quiet=quiet)


def tables_answer_of(options: argparse.Namespace) -> TablesAnswer:
    """The best shardings of all devices, and the best of instances of each size."""
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
    terms = TablesTerms(
        interval=subject.interval,
        dollars_per_kwh=prices.dollars_per_kwh,
        grid_kg_per_kwh=prices.grid_kg_per_kwh,
    )
    return TablesAnswer(
        job=job,
        notes=(subject.title, batch_note, f"Tables and MLPs in {precision}", prices.note, *subject.basis),
        plans=summarize_laid(job, laid, terms, top),
        instances=tuple(summarize_laid(job, one, terms, 1)[0] for one in instances),
    )


def _samples_per_device(batch: int, subject: Subject) -> int:
    if batch % subject.cluster.count:
        rule = f"does not divide by {subject.cluster.count} devices"
        raise BadInput("--batch", batch, rule, f"write {SAMPLES_PER_DEVICE * subject.cluster.count}")
    return batch // subject.cluster.count


def tables_row(each: TablesSummary) -> dict[str, object]:
    """One sharding as a row."""
    plain = (
        "devices", "instances", "global_batch", "step_s", "low_s", "high_s", "samples_per_s", "mfu",
        "exposed_fraction", "total_bytes", "power_w", "dollars_per_billion_samples", "joules_per_sample",
        "co2e_kg_per_billion_samples",
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
    best = answer.best
    if answer.plans:
        tables.show(console, shown.shardings_table(answer.plans))
    else:
        tables.show(console, "No sharding over all devices fits or divides them.")
    tables.show(console, shown.instances_table(answer.instances))
    if quiet:
        return
    lines = [tables.indented(console, line) for line in shown.headline(best)]
    tables.show(console, f"Best: {best.instances} x {best.plan}", *lines, "", *shown.parts_tables(best))
