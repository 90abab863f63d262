"""`trainwright simulate`: one plan in detail."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainwright.api.requests import SimulateRequest
from trainwright.cli import pages
from trainwright.cli.refusal import refuse_given
from trainwright.cli.request_options import add_fields, read_request
from trainwright.units import parse_whole

if TYPE_CHECKING:
    from trainwright.api.simulation import Simulation

_PLACES = 16  # that are drawn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, SimulateRequest)
    parser.add_argument("--width", metavar="N", help="columns of the schedule (default: as the terminal)")
    parser.add_argument("--trace", metavar="FILE", help="a trace of all tasks, which Perfetto opens")
    parser.add_argument("--save-plan", metavar="FILE", help="the plan as text, which PLAN can name")
    pages.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Simulate, write and show; then raise if the plan does not fit."""
    from trainwright.api.simulate import answer_simulate

    if options.json == "-":
        refuse_given(options, ("width",), "is of the schedule drawn, which JSON has not", "leave out one")
    width = parse_whole(options.width, "--width", most=10_000) if options.width else None
    outcome = answer_simulate(read_request(options, SimulateRequest))
    if options.save_plan:
        outcome.save_plan(options.save_plan)
    if options.trace:
        outcome.save_trace(options.trace)
    written = pages.save_reports(options, outcome)
    if not pages.write_json(options, outcome):
        _show(outcome, width, written)
    outcome.check_fit()
    return 0


def _show(outcome: "Simulation", width: int | None, written: Sequence[str]) -> None:
    from trainwright.report import account_tables as shown
    from trainwright.report import tables
    from trainwright.report.drawing import render_schedule

    console, account = tables.open_console(), outcome.account
    tables.show(console, *outcome.notes, "", shown.title(account))
    lines = [*shown.account_lines(account), *_round_lines(outcome)]
    tables.show(console, *(tables.indented(console, line) for line in lines), "")
    tables.show(
        console, shown.time_table(account), shown.memory_table(account), shown.holdings_table(account)
    )
    if any(need.tiers for need in account.memory):
        tables.show(console, shown.tiers_table(account))
    tables.show(console, shown.traffic_table(account), *shown.fallback_lines(account))
    tables.show(console, shown.path_table(account), tables.indented(console, shown.path_line(account)), "")
    if account.free:
        tables.show(console, shown.free_table(account))
    print("Schedule\n")
    print(render_schedule(outcome.timeline, width or console.width, _PLACES), end="")
    for line in written:
        print(line)


def _round_lines(outcome: "Simulation") -> Sequence[str]:
    """How the islands of a plan meet, and what that risks."""
    if outcome.apart is None:
        return ()
    from trainwright.report.island_account import round_account_of
    from trainwright.report.island_tables import round_lines

    return tuple(round_lines(round_account_of(outcome.apart)))
