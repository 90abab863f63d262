"""Plans on a terminal; quietly, only their tables."""

from typing import TYPE_CHECKING

from trainwright.api.low_communication import LowCommunicationPlans
from trainwright.api.non_uniform import flexible_line, flexible_table
from trainwright.api.plan import PlanResult
from trainwright.api.ranked_plans import RankedPlans
from trainwright.api.recipe_lines import recipe_lines
from trainwright.api.recommender_plans import RecommenderPlans
from trainwright.api.sizing_tables import curve_lines, curve_table
from trainwright.api.strategy_plans import StrategyPlans
from trainwright.report import recommender as shown
from trainwright.report import tables
from trainwright.report.island_tables import ALONE, island_lines, islands_table
from trainwright.search.flexible import Flexible

if TYPE_CHECKING:
    from rich.console import Console


def show_plans(result: PlanResult, *, quiet: bool) -> None:
    """Print a result of any kind."""
    console = tables.open_console()
    if isinstance(result, RecommenderPlans):
        _show_recommender(console, result, quiet=quiet)
    elif isinstance(result, LowCommunicationPlans):
        _show_algorithms(console, result, quiet=quiet)
    else:
        _show_strategies(console, result, quiet=quiet)


def _show_strategies(console: "Console", result: StrategyPlans, *, quiet: bool) -> None:
    if result.sizing:
        tables.show(console, curve_table(result.sizing), *curve_lines(result.sizing), "")
    if result.ranked:
        _show_ranked(console, result.ranked, quiet=quiet)
    if result.flexible:
        _show_flexible(console, result.flexible, result.problem.question.top, quiet=quiet)


def _show_flexible(console: "Console", found: Flexible, top: int, *, quiet: bool) -> None:
    tables.show(console, *([] if quiet else [flexible_line(found)]))
    if found.plans:
        tables.show(console, flexible_table(found, top))
        for reason in () if quiet else found.reasons[:top]:
            tables.show(console, tables.indented(console, reason))


def _show_ranked(console: "Console", answer: RankedPlans, *, quiet: bool) -> None:
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


def _show_recommender(console: "Console", result: RecommenderPlans, *, quiet: bool) -> None:
    if not quiet:
        tables.show(console, *result.notes)
    best = result.best
    if result.plans:
        tables.show(console, shown.shardings_table(result.plans))
    else:
        tables.show(console, "No sharding over all devices fits or divides them.")
    tables.show(console, shown.instances_table(result.instances))
    if quiet:
        return
    lines = [tables.indented(console, line) for line in shown.headline(best)]
    tables.show(console, f"Best: {best.instances} x {best.plan}", *lines, "", *shown.parts_tables(best))


def _show_algorithms(console: "Console", result: LowCommunicationPlans, *, quiet: bool) -> None:
    if not quiet:
        tables.show(console, *result.notes)
    tables.show(console, islands_table(result.exact, result.exact_bytes, result.alone, result.found))
    for name, summary in (("exact", result.exact), (ALONE, result.alone)):
        if summary and not quiet:
            tables.show(console, f"{name}: {summary.strategy}")
    for each in result.found if not quiet else ():
        tables.show(console, *(tables.indented(console, line) for line in island_lines(each)))
    for text, why in result.refused.items():
        tables.show(console, f"{text}: {why}")
    tables.show(console, "", *result.advice)
