"""Reports of results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwright.api.plan_problem import PlanProblem
    from trainwright.api.ranked_plans import RankedPlans
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page, Rows

UNDATED = "Figures of devices, networks and models: the catalog (trainwright catalog), with a source each."


def plan_page(
    problem: "PlanProblem", answer: "RankedPlans | None", figures: "Sequence[Figure]", asked: str
) -> "Page":
    """The report of a plan; without an answer, of what was asked only."""
    from trainwright.api.recipe_lines import recipe_lines
    from trainwright.report import tables
    from trainwright.report.page import Page

    question, job = problem.question, problem.question.job
    notes = answer.notes if answer else problem.notes
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
