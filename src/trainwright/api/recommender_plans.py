"""The plans of a recommender: how its tables are sharded, how many instances share a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.api.batch import SAMPLES_PER_DEVICE, choose_batch_size
from trainwright.api.fields import render_command
from trainwright.api.frames import render_html
from trainwright.api.plan_request import PlanRequest
from trainwright.api.prices import build_prices
from trainwright.api.result import ReportedResult, Rows
from trainwright.api.subject import Subject, build_subject, cluster_json
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.types import Job
from trainwright.report import recommender as shown
from trainwright.report.recommender import TablesSummary, TablesTerms, summarize_laid
from trainwright.search.tables import lay_instances, lay_tables
from trainwright.search.usual import check_precision
from trainwright.units import parse_whole, render_bytes, render_duration

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommenderPlans(ReportedResult, schema="recommender-plan/1"):
    """The best shardings over all devices, best first; and the best of instances of each size."""

    request: PlanRequest
    job: Job
    notes: tuple[str, ...]  # what was assumed, and what predictions rest on
    plans: tuple[TablesSummary, ...]  # on all devices
    instances: tuple[TablesSummary, ...]  # the best of each size

    @property
    def best(self) -> TablesSummary:
        """What gets most samples from the cluster."""
        return max((*self.plans[:1], *self.instances), key=lambda each: each.samples_per_s)

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[TablesSummary]:
        return iter(self.plans)

    def __getitem__(self, index: int) -> TablesSummary:
        return self.plans[index]

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --json` writes."""
        return {
            "model": self.job.graph.name,
            "cluster": cluster_json(self.job.cluster),
            "stack": self.job.stack.name,
            "notes": self.notes,
            "plans": self.plans,
            "instances": self.instances,
        }

    def rows(self) -> Rows:
        """A row for each sharding."""
        return [_row(each) for each in self.plans]

    def csv_rows(self) -> Rows:
        """A row for each sharding, then for the best of each size of an instance."""
        return [_row(each) for each in (*self.plans, *self.instances)]

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of it."""
        from trainwright.report.recommender_figures import recommender_figures

        return tuple(recommender_figures(self.plans, self.instances))

    def page(self) -> "Page":
        """The report."""
        from trainwright.api.pages import UNDATED, table_rows
        from trainwright.report.page import Page

        best = self.best
        shardings = [shown.shardings_table(self.plans)] if self.plans else []
        listed = [*shardings, shown.instances_table(self.instances), *shown.parts_tables(best)]
        return Page(
            title=self.notes[0], question=("How should the tables lie on this cluster?", self.notes[1]),
            answer=(f"Best: {best.instances} x {best.plan}", *shown.headline(best)), figures=self.figures(),
            tables=table_rows(listed), assumptions=(*self.notes[2:], UNDATED),
            command=render_command("plan", self.request),
        )  # fmt: skip

    def __repr__(self) -> str:
        best = self.best
        words = f"best {best.instances} x {best.plan}: {render_duration(best.step_s)}"
        return f"RecommenderPlans({len(self)}, {words})"

    def _repr_html_(self) -> str:
        return render_html(self.notes[0], self.rows())


def plan_recommender(request: PlanRequest) -> RecommenderPlans:
    """The best shardings of all devices, and the best of instances of each size."""
    subject = build_subject(request)
    prices = build_prices(request, subject.cluster)
    batch, batch_note = choose_batch_size(request.batch, subject)
    precision = request.precision or subject.cluster.device.usual_precision
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
            "or devices with more memory",
            needed_bytes=least,
            capacity_bytes=room,
        )
    top = parse_whole(request.top, "--top")
    terms = TablesTerms(
        interval=subject.interval,
        dollars_per_kwh=prices.dollars_per_kwh,
        grid_kg_per_kwh=prices.grid_kg_per_kwh,
    )
    return RecommenderPlans(
        request=request,
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


def _row(each: TablesSummary) -> dict[str, object]:
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
