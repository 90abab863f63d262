"""`trainwright plan --algorithm`: exact training beside algorithms whose islands train apart."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.algorithm.registry import short_name
from trainwright.cli.answer import Answer, answer_of, json_of
from trainwright.cli.request import Request, parse_request
from trainwright.cost.anchor import Anchoring
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.estimate.rounds import Option
from trainwright.output_file import make_folder, save_text
from trainwright.plan.expand import count_microbatches, expand
from trainwright.plan.islands import parse_island_algorithm
from trainwright.plan.strategy import stack_strategies
from trainwright.program.crossing import crossing_bytes
from trainwright.program.lower import lower
from trainwright.program.meetings import island_counts
from trainwright.program.setting import Setting
from trainwright.report.files import render_csv
from trainwright.report.island_tables import ALONE, advice_lines, island_lines, islands_table
from trainwright.report.islands import ApartSummary, summarize_apart
from trainwright.report.summary import Summary, summarize
from trainwright.search.check import check_constraints
from trainwright.search.islands import Run, find_apart
from trainwright.search.variants import find_winner
from trainwright.units import parse_whole

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page

_MOST_ISLANDS = 65_536
_MOST_LOWERED = 1 << 20  # devices times microbatches: beyond it bytes of exact training are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartAnswer:
    """Exact training, if it fits, with what it sends between islands; and each algorithm."""

    notes: tuple[str, ...]
    exact: Answer | None
    exact_bytes: float | None  # that an island sends in a step
    alone: Summary | None  # exact training of the whole batch on one island, the others idle
    found: tuple[ApartSummary, ...]
    refused: Mapping[str, str]  # algorithms for which nothing fits, and why
    anchor: Anchoring | None = None  # what runs of the user say of it

    @property
    def best_exact(self) -> Summary | None:
        """The best strategy of exact training."""
        return self.exact.summaries[0] if self.exact else None

    @property
    def advice(self) -> list[str]:
        """What to choose."""
        return advice_lines(self.best_exact, self.alone, self.found)

    def tree(self) -> Mapping[str, object]:
        """As one tree of plain values: that of exact training, and the algorithms beside it."""
        tree = dict(json_of(self.exact)) if self.exact else {"notes": self.notes, "plans": ()}
        return {
            **tree, "anchor": self.anchor, "exact_sent_bytes_per_step": self.exact_bytes,
            "exact_on_one_island": self.alone, "algorithms": self.found,
            "refused": self.refused, "advice": self.advice,
        }  # fmt: skip

    def csv(self) -> str:
        """A row for exact training and one for each measured risk of each algorithm."""
        return render_csv(_COLUMNS, islands_rows(self))

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of the algorithms."""
        from trainwright.report.island_figures import island_figures

        return tuple(island_figures(self.best_exact, self.alone, self.found))

    def page(self, asked: str) -> "Page":
        """The report."""
        from trainwright.cli.pages import UNDATED, table_rows
        from trainwright.report import tables
        from trainwright.report.page import Page

        exact = self.exact
        shown = [islands_table(self.best_exact, self.exact_bytes, self.alone, self.found)]
        shown += [tables.plans_table(exact.summaries, exact.variant_counts)] if exact else []
        lines = [line.strip() for each in self.found for line in island_lines(each)]
        refused = [f"{text}: {why}" for text, why in self.refused.items()]
        return Page(
            title=self.notes[0], question=("Which algorithm should train this model?", *self.notes[1:2]),
            answer=(*self.advice, *lines, *refused), figures=self.figures(), tables=table_rows(shown),
            assumptions=(*self.notes[2:], UNDATED), command=asked,
        )  # fmt: skip

    def show(self, *, quiet: bool) -> None:
        """Print exact training and the algorithms side by side."""
        _show(self, quiet=quiet)


def save_plans(answer: ApartAnswer, folder: Path) -> None:
    """A plan file for each algorithm."""
    make_folder(folder)
    for each in answer.found:
        save_text(folder / f"{each.name}.plan", each.plan)


def apart_answer_of(options: argparse.Namespace) -> ApartAnswer:
    """What the options ask; raises where no algorithm and no strategy fits."""
    texts = parse_algorithms(options.algorithm)
    islands = parse_whole(options.islands, "--islands", most=_MOST_ISLANDS) if options.islands else None
    request = parse_request(options)
    exact = _exact(request)
    request = exact.request if exact else request  # islands have the optimizer state of exact training
    job = request.question.job
    best = exact.summaries[0] if exact else None
    chosen, refused = _options(request, texts, islands, best)
    insides = {each.job.cluster.count for each in chosen}  # devices of an island
    told = {inside: _exact_bytes(request, exact, inside) for inside in insides}
    found = [summarize_apart(each, job, request.terms, best, told[each.job.cluster.count]) for each in chosen]
    if not found and exact is None:
        raise InfeasiblePlan("; ".join(f"{text}: {why}" for text, why in refused.items()))
    notes = exact.notes if exact else (*request.notes, "Exact training does not fit this cluster.")
    inside = found[0].island_devices if found else job.cluster.count // island_counts(job.cluster)[0]
    sent = told[inside] if inside in told else _exact_bytes(request, exact, inside)
    return ApartAnswer(
        notes=notes, exact=exact, exact_bytes=sent, alone=_alone(request, inside), found=tuple(found),
        refused=refused, anchor=request.anchor,
    )  # fmt: skip


def _alone(request: Request, devices: int) -> Summary | None:
    """Exact training of the whole batch on one island of so many devices; nothing if it does not fit."""
    job = request.question.job
    inner = replace(job, cluster=replace(job.cluster, count=devices))
    question = replace(request.question, job=inner)
    try:
        check_constraints(question)
    except BadInput:  # what is fixed is for the whole cluster
        return None
    found = find_winner(question)[1]
    if not len(found):
        return None
    return summarize(inner, stack_strategies([found.strategies[0]]), request.terms)[0]


def _options(
    request: Request, texts: tuple[str, ...], islands: int | None, exact: Summary | None
) -> tuple[list[Option], dict[str, str]]:
    """The best option of each algorithm; and for those without one, why."""
    found, refused = [], {}
    question = replace(request.question, top=1, families=0)
    (batch,) = question.batches
    steps = request.terms.tokens / (batch * question.job.seq)
    run = Run(steps=steps, exact_s=exact.step_s if exact else None)
    for text in texts:
        try:
            found.append(find_apart(question, text, islands, run))
        except InfeasiblePlan as error:
            refused[text] = str(error)
        except BadInput as error:  # like more islands than a layer has units: others may do
            if len(refused) == len(texts) - 1:
                raise
            refused[text] = str(error)
    return found, refused


def parse_algorithms(text: str) -> tuple[str, ...]:
    """The algorithms of a list with commas, each with hyperparameters if some are stated."""
    texts = tuple(" ".join(each.split()) for each in text.split(","))
    names = [short_name(parse_island_algorithm(each)) for each in texts]
    if len(set(names)) < len(names):
        raise BadInput("--algorithm", text, "names one twice", "compare its hyperparameters in two commands")
    return texts


def _exact(request: Request) -> Answer | None:
    try:
        return answer_of(request)
    except InfeasiblePlan:
        return None


def _exact_bytes(request: Request, exact: Answer | None, inside: int) -> float | None:
    """What leaves an island in a step of exact training, counted over its lowered plan."""
    if exact is None:
        return None
    best, job = exact.summaries[0], request.question.job
    if job.cluster.count * count_microbatches(best.strategy, best.global_batch) > _MOST_LOWERED:
        return None
    plan = expand(
        best.strategy, job.graph, best.global_batch,
        balanced=job.stack.balanced_stages,
    )  # fmt: skip
    setting = Setting(
        graph=job.graph, cluster=job.cluster, stack=job.stack, efficiency=job.efficiency, seq=job.seq,
        precision=plan.precision,
    )  # fmt: skip
    return crossing_bytes(lower(setting, plan), inside)


_COLUMNS = (
    "name", "algorithm", "islands", "every", "strategy", "step_s", "low_s", "high_s", "tokens_per_s", "mfu",
    "sent_bytes_per_step", "total_bytes", "power_w", "days", "dollars", "kwh", "network", "workers",
    "setting", "excess_loss", "low", "high",
)  # fmt: skip


def islands_rows(answer: ApartAnswer) -> list[dict[str, object]]:
    """A row for exact training and one for each measured risk of each algorithm."""
    rows: list[dict[str, object]] = []
    if (best := answer.best_exact) is not None:
        rows.append(_row(best) | {"name": "exact", "sent_bytes_per_step": answer.exact_bytes})
    if answer.alone is not None:
        rows.append(_row(answer.alone) | {"name": ALONE, "sent_bytes_per_step": 0.0})
    for each in answer.found:
        for risk in each.risks or (None,):
            rows.append(_row(each) | ({} if risk is None else _row(risk) | {"algorithm": each.algorithm}))
    return [dict.fromkeys(_COLUMNS) | row for row in rows]


def _row(found: object) -> dict[str, object]:
    sources = (found, getattr(found, "budget", None))
    return {name: getattr(each, name) for each in sources for name in _COLUMNS if hasattr(each, name)}


def _show(answer: ApartAnswer, *, quiet: bool) -> None:
    from trainwright.report import tables

    console, exact = tables.open_console(), answer.best_exact
    if not quiet:
        tables.show(console, *answer.notes)
    tables.show(console, islands_table(exact, answer.exact_bytes, answer.alone, answer.found))
    for name, summary in (("exact", exact), (ALONE, answer.alone)):
        if summary and not quiet:
            tables.show(console, f"{name}: {summary.strategy}")
    for each in answer.found if not quiet else ():
        tables.show(console, *(tables.indented(console, line) for line in island_lines(each)))
    for text, why in answer.refused.items():
        tables.show(console, f"{text}: {why}")
    tables.show(console, "", *answer.advice)
