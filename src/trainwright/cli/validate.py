"""`trainwright validate`: predicted beside measured for a table of real runs."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from trainwright.cli import cost, runs_option

if TYPE_CHECKING:
    from trainwright.cost.anchor import Anchor
    from trainwright.cost.source import Source
    from trainwright.validate.compare import Errors
    from trainwright.validate.dataset import Dataset, Predictions
    from trainwright.validate.sourced import Sourced


class _Advance(Protocol):
    def __call__(self, rows: int) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "table", metavar="RUNS.csv", nargs="?",
        help="one run per row, columns as in docs/validation.md; without it, the catalog's published runs",
    )  # fmt: skip
    cost.add_arguments(parser, "calibrated; profiled times are for rows on the profiled device only")
    runs_option.add_arguments(parser)
    parser.add_argument("--out", metavar="FILE", help="write the rows with predictions as CSV")
    parser.add_argument("--json", action="store_true", help="the errors as JSON on standard output")


def run(options: argparse.Namespace) -> int:
    """Predict every row, write them, show the errors."""
    from dataclasses import replace

    from trainwright.cost.load import load_constants
    from trainwright.output_file import save_text
    from trainwright.report.files import render_csv, render_json
    from trainwright.validate.anchor_runs import anchor_predictions
    from trainwright.validate.compare import ADDED, BY, errors_by, predicted_rows, unreadable
    from trainwright.validate.dataset import PUBLISHED, build_dataset, load_rows
    from trainwright.validate.power import predict_power
    from trainwright.validate.sourced import source_groups

    constants = load_constants()
    rows = load_rows(Path(options.table) if options.table else PUBLISHED)
    sourced = source_groups(build_dataset(rows, constants.stack), options.cost, constants)
    dataset, within = sourced.dataset, sourced.ranges
    predictions = _predict(sourced)
    anchor, notes = _load_anchor(options), sourced.notes
    unanchored_s, anchored = predictions.step_s, None
    if anchor is not None:
        predictions, within, count = anchor_predictions(dataset, predictions, within, anchor, constants)
        anchored = {"file": anchor.name, "runs": len(anchor.runs), "rows": count}
        notes = (*notes, *anchor.notes, _anchored_line(anchored, len(rows)))
    if options.out:
        columns = [name for name in rows[0] if name is not None and name not in ADDED]
        power = predict_power(dataset, predictions, sourced.sources)
        slower = predictions.step_s / unanchored_s
        power = replace(power, tokens_per_joule=power.tokens_per_joule / slower)
        told = predicted_rows(dataset, predictions, within, power)
        save_text(Path(options.out), render_csv([*columns, *ADDED], told))
    errors = {column: errors_by(dataset, predictions, within, column) for column in BY}
    if options.json:
        tree = {"notes": notes, "rows": len(rows), "anchor": anchored, "errors": errors}
        print(render_json(tree | {"not_predicted": unreadable(dataset)}), end="")
    else:
        _show(dataset, notes, errors)
    return 0


def _load_anchor(options: argparse.Namespace) -> "Anchor | None":
    """The runs to anchor to, which correct calibrated constants only."""
    from trainwright.api.anchoring import read_anchor

    return read_anchor(options.runs, "class" if options.cost in (None, "calibrated") else options.cost)


def _anchored_line(anchored: "Mapping[str, object]", rows: int) -> str:
    return (
        f"Anchored to {anchored['file']} ({anchored['runs']} runs): {anchored['rows']} of {rows} rows are "
        "corrected, the others are of stacks or families of devices without a run in it."
    )


def _predict(sourced: "Sourced") -> "Predictions":
    """Predictions group by group, so that progress can be shown."""
    import numpy as np

    from trainwright.validate.dataset import Predictions

    dataset, count = sourced.dataset, len(sourced.dataset.rows)
    chosen = np.zeros(count, dtype=np.int64)
    step, memory, needed = (np.full(count, np.nan) for _ in range(3))
    fits = np.zeros(count, dtype=bool)
    with _progress(count) as advance:
        for index, (group, source) in enumerate(zip(dataset.groups, sourced.sources, strict=True)):
            part = _with_source(dataset, index, source)
            at = list(group.indices)
            step[at], memory[at], fits[at] = part.step_s[at], part.memory_bytes[at], part.fits[at]
            chosen[at], needed[at] = part.chosen[at], part.needed_bytes[at]
            advance(len(at))
    return Predictions(step_s=step, memory_bytes=memory, needed_bytes=needed, fits=fits, chosen=chosen)


def _with_source(dataset: "Dataset", group: int, source: "Source") -> "Predictions":
    from trainwright.validate.dataset import predict

    return predict(dataset, lambda _: source.stack, lambda _: source.efficiency, [group])


@contextmanager
def _progress(total: int) -> Iterator[_Advance]:
    """A bar on standard error if that is a terminal; one line at the end if not."""
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr)
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda rows: bar.advance(task, rows)
    if not console.is_terminal:
        print(f"trainwright: predicted {total} rows", file=sys.stderr)


def _show(dataset: "Dataset", notes: "Sequence[str]", errors: "Mapping[str, Sequence[Errors]]") -> None:
    from trainwright.report import tables
    from trainwright.validate.compare import render_errors, unreadable

    console = tables.open_console()
    for note in notes:
        tables.show(console, note)
    headers = ("", "rows", "timed", "median", "mean", "bias", "in range", "memory", "fits right")
    for column, groups in errors.items():
        rows = [render_errors(each) for each in groups]
        tables.show(console, tables.table(f"Errors of step time per {column}", headers, rows))
    for reason, count in list(unreadable(dataset).items())[:10]:
        tables.show(console, f"{count} rows not predicted: {reason}")
