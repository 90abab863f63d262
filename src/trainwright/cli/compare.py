"""`trainwright compare`: a predicted and a measured step side by side."""

import argparse
import sys
from typing import TYPE_CHECKING

from trainwright.api.requests import CompareRequest
from trainwright.cli.pages import add_json, write_json
from trainwright.cli.request_options import add_fields, read_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.api.compare import ComparedSteps
    from trainwright.report.comparison import Comparison, Pair


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, CompareRequest)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Read both, compare, write and show."""
    from trainwright.api.compare import answer_compare

    compared = answer_compare(read_request(options, CompareRequest))
    for path in compared.unsealed:
        print(f"trainwright: {path} has no checksum: it is not verified", file=sys.stderr)
    if not write_json(options, compared):
        _show(compared)
    return 0


def _show(compared: "ComparedSteps") -> None:
    from trainwright.report import tables

    about, cost, comparison = compared.about, compared.cost, compared.comparison
    console, step = tables.open_console(), comparison.step
    tables.show(console, f"{about['model']}, {about['plan']}, sequences of {about['seq']} tokens")
    tables.show(console, *([f"Predicted by: {cost}"] if cost else []), "")
    headers = ("", "predicted", "measured", "difference", "of it")
    whole = [*comparison.causes, step]
    tables.show(
        console,
        tables.table("What adds to the step, mean device", headers, _rows(whole, step.difference_s)),
        tables.table("Busy, by device and lane", headers[:4], _lanes(comparison)),
        tables.table(
            "Tasks, all layers together, mean device", headers, _rows(comparison.tasks, step.difference_s)
        ),
    )


def _rows(pairs: "Sequence[Pair]", total_s: float) -> list[list[str]]:
    return [
        [*_cells(each), f"{each.difference_s / total_s:.0%}" if total_s else ""]
        for each in pairs
    ]  # fmt: skip


def _lanes(comparison: "Comparison") -> list[list[str]]:
    return [
        [f"device {device} {each.name}", *_cells(each)[1:]]
        for device, pairs in comparison.lanes.items()
        for each in pairs
    ]


def _cells(pair: "Pair") -> list[str]:
    from trainwright.units import render_duration

    sign = "-" if pair.difference_s < 0 else "+"
    return [
        pair.name, render_duration(pair.predicted_s), render_duration(pair.measured_s),
        sign + render_duration(abs(pair.difference_s)),
    ]  # fmt: skip
