"""Reports and pictures that a command writes beside its answer: `--report FILE` and `--figures DIR`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.cli.answer import Answer
    from trainwright.cli.findings import Findings
    from trainwright.cli.outcome import Outcome
    from trainwright.cli.request import Request
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page, Rows

UNDATED = "Figures of devices, networks and models: the catalog (trainwright catalog), with a source each."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that write them."""
    parser.add_argument("--report", metavar="FILE", help="all of it as one HTML file that opens offline")
    parser.add_argument("--figures", metavar="DIR", help="its figures as PNG and SVG")


def save_pages(options: argparse.Namespace, page: "Page") -> list[str]:
    """Write what was asked for; a line for each."""
    from trainwright.output_file import save_text
    from trainwright.report.figures import save_pictures
    from trainwright.report.page import render_page

    lines = []
    if options.report:
        save_text(Path(options.report), render_page(page))
        lines.append(f"Written: {options.report}")
    if options.figures:
        saved = save_pictures(Path(options.figures), page.figures)
        lines.append(f"Written: {len(saved)} pictures in {options.figures}")
    return lines


def wanted(options: argparse.Namespace) -> bool:
    """Whether there is anything to write."""
    return bool(options.report or options.figures)


def plan_page(request: "Request", answer: "Answer | None", figures: "Sequence[Figure]", asked: str) -> "Page":
    """The report of a plan; without an answer, of what was asked only."""
    from trainwright.cli.recipe_lines import recipe_lines
    from trainwright.report import tables
    from trainwright.report.page import Page

    question, job = request.question, request.question.job
    notes = answer.notes if answer else request.notes
    page = Page(
        title=f"{job.graph.name} on {job.cluster.count:,} {job.cluster.device.name}",
        question=(
            f"How should this model be trained on this cluster, by {question.objective}?", *notes[:2],
        ),
        answer=("No strategy fits.",), figures=figures, tables=(), assumptions=(*notes[2:], UNDATED),
        command=asked,
    )  # fmt: skip
    if answer is None:
        return page
    winner = answer.summaries[0]
    shown = [
        tables.plans_table(answer.summaries, answer.variant_counts), tables.breakdown_table(winner),
        tables.memory_table(winner),
        tables.what_if_table(answer.what_if, answer.winners, answer.compared),
    ]  # fmt: skip
    published = recipe_lines(answer.published) if answer.published else ()
    compared = [f"Published recipe: {published[0]}", *published[1:]] if published else []
    lines = (answer.best_line, *tables.headline(winner), *answer.limits, *compared)
    return replace(page, answer=lines, tables=table_rows(shown))


def account_page(outcome: "Outcome", asked: str) -> "Page":
    """The report of one simulated plan."""
    from trainwright.report import account_tables as shown
    from trainwright.report.account_figures import account_figures
    from trainwright.report.blocks import blocks_of
    from trainwright.report.page import Page

    account = outcome.account
    parts = (
        shown.time_table, shown.memory_table, shown.holdings_table, shown.traffic_table, shown.path_table,
    )  # fmt: skip
    return Page(
        title=f"{outcome.subject.graph.name}: {account.plan}",
        question=("What does a step of this plan do, and what does it wait for?", *outcome.notes[:2]),
        answer=(shown.title(account), *shown.account_lines(account), shown.path_line(account)),
        figures=account_figures(account), tables=table_rows([part(account) for part in parts]),
        assumptions=(*outcome.notes[2:], UNDATED), command=asked,
        blocks=blocks_of(outcome.simulated.timeline), capacity_bytes=account.capacity_bytes,
    )  # fmt: skip


def findings_page(findings: "Findings", asked: str) -> "Page":
    """The report of a study."""
    from trainwright.report.page import Page, Rows

    held = sum(figure.holds for figure in findings.figures if figure.claim)
    claims = sum(bool(figure.claim) for figure in findings.figures)
    summary = (f"{held} of {claims} claims hold.",) if claims else ()
    return Page(
        title=findings.title, question=(f"{findings.title}: which published claims hold?",),
        answer=(*summary, *findings.lines), figures=findings.figures,
        tables=tuple(
            Rows(title=name, rows=rows[:_MOST_ROWS]) for name, rows in findings.tables.items() if rows
        ),
        assumptions=(UNDATED,), command=asked,
    )  # fmt: skip


_MOST_ROWS = 400  # of a table in a report; the CSV has all


def table_rows(shown: Sequence[Any]) -> "tuple[Rows, ...]":
    """Tables as the terminal has them, as rows."""
    from trainwright.report.page import Rows

    return tuple(
        Rows(
            title=str(table.title or ""),
            rows=[
                dict(zip((str(each.header) for each in table.columns), cells, strict=True))
                for cells in zip(*([str(cell) for cell in each.cells] for each in table.columns), strict=True)
            ],
        )
        for table in shown
    )
