"""The answer to `plan`: which kind of planning the options ask for is decided here, for every caller."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainwright.cli import interruptions
from trainwright.cli.answer import answer_of
from trainwright.cli.knobs import LIMITED
from trainwright.cli.limits import Limits, parse_limits
from trainwright.cli.pages import save_pages, wanted
from trainwright.cli.plan_islands import ApartAnswer, apart_answer_of, save_plans
from trainwright.cli.plan_tables import tables_answer_of
from trainwright.cli.refusal import refuse_given
from trainwright.cli.request import parse_request
from trainwright.cli.sizing import ReportProgress, size_of
from trainwright.cli.strategy_answer import StrategyAnswer
from trainwright.errors import InfeasiblePlan
from trainwright.model.load import load_model
from trainwright.output_file import save_text
from trainwright.report.files import render_json

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page

# Options that speak of layers, tokens, sequences, or of a run's interruptions.
_NOT_OF_TABLES = (
    "batch_tokens", "batch_range", "batch_tolerance", "seq", "objective", "fix", "pareto",
    *(f"max_{knob}" for knob in LIMITED),
    "flexible", "tokens", "target_loss", "scaling_law", "critical_batch", "max_days", "max_dollars",
    "devices_range", "all_variants", "oom_risk", "headroom", "runs", *interruptions.NAMES,
)  # fmt: skip
_OF_SMALLEST = ("max_days", "max_dollars")


class PlanAnswer(Protocol):
    """An answer of any kind, in every form that a caller can ask for."""

    def tree(self) -> Mapping[str, object]:
        """As one tree of plain values."""

    def csv(self) -> str:
        """As CSV, with a header line."""

    def figures(self) -> "tuple[Figure, ...]":
        """What is drawn of it."""

    def page(self, asked: str) -> "Page":
        """As a report."""

    def show(self, *, quiet: bool) -> None:
        """Printed; quietly, only its tables of plans."""


def plan_answer(options: argparse.Namespace, report_progress: ReportProgress) -> PlanAnswer:
    """What the options ask; `InfeasiblePlan` if nothing fits. An option that does not apply raises."""
    if load_model(options.model).kind == "dlrm":
        refuse_given(
            options, ("algorithm", "islands", "save_plans"),
            "is not for recommenders, whose tables no island could hold alone",
        )  # fmt: skip
        refuse_given(options, _NOT_OF_TABLES, "does not apply to a recommender")
        return tables_answer_of(options)
    if options.algorithm is not None:
        _check_algorithm(options)
        return apart_answer_of(options)
    rule, remedy = "goes with --algorithm", 'state both, as in --algorithm "diloco"'
    refuse_given(options, ("islands", "save_plans"), rule, remedy)
    limits = parse_limits(options)
    return _strategies(options) if limits is None else _smallest(options, limits, report_progress)


def _check_algorithm(options: argparse.Namespace) -> None:
    rule = "goes with exact training, and --algorithm compares it with others on one cluster"
    names = ("flexible", "pareto", *_OF_SMALLEST, "devices_range")
    refuse_given(options, names, rule, "leave out one of the two")
    refuse_given(options, ("batch_range",), "is for exact training, without --algorithm", "use --batch")


def _strategies(options: argparse.Namespace) -> StrategyAnswer:
    from trainwright.cli.flexible import check_flexible, flexible_of

    request = parse_request(options)
    if options.flexible:
        check_flexible(request, options.fix)
    try:
        best = answer_of(request)
    except InfeasiblePlan:
        flexible = flexible_of(request) if options.flexible else None
        if not flexible or not flexible.plans:
            raise
        refuse_given(options, ("pareto",), "is of strategies, and none of them fits")
        return StrategyAnswer(request=request, best=None, flexible=flexible)
    flexible = flexible_of(best.request) if options.flexible else None
    return StrategyAnswer(request=best.request, best=best, flexible=flexible)


def _smallest(options: argparse.Namespace, limits: Limits, report_progress: ReportProgress) -> StrategyAnswer:
    """A cluster within the limits: the counts around it, and its plans."""
    sizing = size_of(options, limits, report_progress)
    request = parse_request(options, sizing.chosen.devices)
    best = answer_of(request)
    return StrategyAnswer(request=best.request, best=best, sizing=sizing)


def save_answer(options: argparse.Namespace, answer: PlanAnswer) -> list[str]:
    """Write the files that the options name; a line for each that people should be told of."""
    written = save_pages(options, answer.page(options.asked)) if wanted(options) else []
    if options.save_plans and isinstance(answer, ApartAnswer):
        save_plans(answer, Path(options.save_plans))
    if options.csv:
        save_text(Path(options.csv), answer.csv())
    if options.json and options.json != "-":
        save_text(Path(options.json), render_json(answer.tree()))
    return written
