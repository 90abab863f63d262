"""The best strategies of a cluster, or of the smallest one within limits, in every form that is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainwright.cli.answer import Answer, csv_rows, json_of
from trainwright.cli.curve import curve_csv, curve_json, curve_lines, curve_table
from trainwright.cli.flexible import flexible_json, flexible_line, flexible_rows, flexible_table
from trainwright.cli.recipe_lines import recipe_lines
from trainwright.cli.request import Request
from trainwright.cli.sizing import Sizing
from trainwright.report import tables
from trainwright.report.files import render_csv
from trainwright.search.flexible import Flexible

if TYPE_CHECKING:
    from rich.console import Console

    from trainwright.report.figures import Figure
    from trainwright.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyAnswer:
    """Strategies, if one fits; the counts of devices around the smallest cluster; plans beyond knobs."""

    request: Request
    best: Answer | None  # none only where plans beyond knobs fit
    sizing: Sizing | None = None
    flexible: Flexible | None = None

    def tree(self) -> Mapping[str, object]:
        """As one tree of plain values."""
        found = json_of(self.best) if self.best else self._without_plans()
        curve = curve_json(self.sizing) if self.sizing else {}
        return {**found, **curve, **({"flexible": flexible_json(self.flexible)} if self.flexible else {})}

    def _without_plans(self) -> Mapping[str, object]:
        return {"anchor": self.request.anchor, "notes": self.request.notes, "plans": ()}

    def csv(self) -> str:
        """The counts of devices, if the smallest cluster was asked for; else plans, one row each."""
        if self.sizing:
            return curve_csv(self.sizing)
        rows = csv_rows(self.best) if self.best else []
        rows += flexible_rows(self.flexible) if self.flexible else []
        return render_csv(list(rows[0]), rows)

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of it."""
        from trainwright.report.plan_figures import plan_figures

        best = self.best
        return tuple(plan_figures(best.summaries, best.front, best.what_if)) if best else ()

    def page(self, asked: str) -> "Page":
        """The report."""
        from trainwright.cli.pages import plan_page, table_rows

        page, before, after = plan_page(self.request, self.best, self.figures(), asked), [], []
        if self.sizing:
            before = [curve_table(self.sizing)]
            page = replace(page, answer=(*curve_lines(self.sizing), *page.answer))
        if self.flexible:
            after = [flexible_table(self.flexible, self.request.question.top)]
            page = replace(page, answer=(*page.answer, flexible_line(self.flexible), *self.flexible.reasons))
        return replace(page, tables=(*table_rows(before), *page.tables, *table_rows(after)))

    def show(self, *, quiet: bool) -> None:
        """Print it; quietly, only its tables of plans."""
        console = tables.open_console()
        if self.sizing:
            tables.show(console, curve_table(self.sizing), *curve_lines(self.sizing), "")
        if self.best:
            _show_best(console, self.best, quiet=quiet)
        if self.flexible:
            self._show_flexible(console, self.flexible, quiet=quiet)

    def _show_flexible(self, console: "Console", found: Flexible, *, quiet: bool) -> None:
        top = self.request.question.top
        tables.show(console, *([] if quiet else [flexible_line(found)]))
        if found.plans:
            tables.show(console, flexible_table(found, top))
            for reason in () if quiet else found.reasons[:top]:
                tables.show(console, tables.indented(console, reason))


def _show_best(console: "Console", answer: Answer, *, quiet: bool) -> None:
    if not quiet:
        tables.show(console, *answer.notes)
    tables.show(console, tables.families_table(answer.summaries, answer.variant_counts))
    if answer.front:
        tables.show(console, "Pareto front of time against memory", tables.front_table(answer.front))
    if quiet:
        return
    winner = answer.summaries[0]
    lines = [tables.indented(console, line) for line in tables.headline(winner)]
    limits = [tables.indented(console, line) for line in answer.limits]
    tables.show(console, answer.best_line, *lines, "")
    tables.show(console, tables.breakdown_table(winner), tables.memory_table(winner))
    if winner.tiers:
        tables.show(console, tables.tiers_table(winner))
    tables.show(console, "What limits it", *limits, "")
    if answer.published:
        compared = [tables.indented(console, line) for line in recipe_lines(answer.published)]
        tables.show(console, "Published recipe", *compared, "")
    tables.show(console, tables.what_if_table(answer.what_if, answer.winners, answer.compared))
