"""`trainwright validate`: predictions compared with measurements for a table of real runs."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainwright.api.requests import ValidateRequest
from trainwright.cli.request_options import add_fields, read_request

if TYPE_CHECKING:
    from trainwright.api.validate import ReportRows, ValidationErrors


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, ValidateRequest)
    parser.add_argument("--out", metavar="FILE", help="write the rows with predictions as CSV")
    parser.add_argument("--json", action="store_true", help="the errors as JSON on standard output")


def run(options: argparse.Namespace) -> int:
    """Predict every row, write them, show the errors."""
    from trainwright.api.validate import answer_validate

    with _progress() as report_rows:
        found = answer_validate(read_request(options, ValidateRequest), report_rows)
    if options.out:
        found.save_csv(options.out)
    if options.json:
        print(found.to_json(), end="")
    else:
        _show(found)
    return 0


@contextmanager
def _progress() -> Iterator["ReportRows"]:
    """A bar on standard error if that is a terminal; one line at the end if not."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=None)
        yield lambda done, planned: bar.update(task, completed=done, total=planned)
    if not console.is_terminal:
        print(f"trainwright: predicted {bar.tasks[0].total or 0:.0f} rows", file=sys.stderr)


def _show(found: "ValidationErrors") -> None:
    from trainwright.report import tables
    from trainwright.validate.compare import render_errors

    console = tables.open_console()
    for note in found.notes:
        tables.show(console, note)
    headers = ("", "rows", "timed", "median", "mean", "bias", "in range", "memory", "fits right")
    for column, groups in found.errors.items():
        rows = [render_errors(each) for each in groups]
        tables.show(console, tables.table(f"Errors of step time per {column}", headers, rows))
    for reason, count in list(found.not_predicted.items())[:10]:
        tables.show(console, f"{count} rows not predicted: {reason}")
    for remark, count in list(found.doubtful.items())[:10]:
        tables.show(console, f"{count} rows with a wider range: {remark}")
