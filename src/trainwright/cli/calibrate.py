"""`trainwright calibrate`: constants refined by what a user has measured: a profiler's trace, or runs."""

import argparse
from typing import TYPE_CHECKING

from trainwright.api.requests import CalibrateRequest
from trainwright.cli.pages import add_json, write_json
from trainwright.cli.request_options import add_fields, read_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwright.api.calibrate import AnchoredRuns
    from trainwright.cost.anchor import Anchoring, AnchorRun, LevelCorrection
    from trainwright.validate.trace_fit import Refined

_HEADERS = (
    "runs of", "runs", "time: ratio", "corrected", "range", "memory: ratio", "corrected", "range",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    add_fields(parser, CalibrateRequest)
    parser.add_argument(
        "--out", metavar="FILE",
        help="with --from, a cluster file with the refined efficiencies; with --runs, an anchor file for "
        "--runs of plan, simulate and validate (TOML)",
    )  # fmt: skip
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Refine; show and write."""
    from trainwright.api.calibrate import AnchoredRuns, answer_calibrate

    found = answer_calibrate(read_request(options, CalibrateRequest))
    if options.out:
        found.save(options.out)
    if write_json(options, found):
        return 0
    if isinstance(found, AnchoredRuns):
        _show_runs(found)
        use = "give it as --runs to plan, simulate and validate"
    else:
        _show_refined(found.refined)
        use = "usable wherever a CLUSTER is asked for"
    if options.out:
        print(f"{options.out}: {use}")
    return 0


def _show_runs(found: "AnchoredRuns") -> None:
    from trainwright.report import tables

    console = tables.open_console()
    tables.show(console, *found.notes)
    rows = [_row(own, each) for own, each in zip(found.groups, found.corrections, strict=True)]
    tables.show(console, tables.table("Measured over predicted, and what it corrects", _HEADERS, rows))


def _show_refined(found: "Sequence[Refined]") -> None:
    from trainwright.report import tables
    from trainwright.units import render_duration

    rows = [
        [each.constant, f"{each.before:.3f}", f"{each.after:.3f}", str(each.kernels),
         render_duration(each.measured_s), render_duration(each.predicted_s)]
        for each in found
    ]  # fmt: skip
    headers = ("share of the datasheet", "before", "after", "kernels", "measured", "predicted then")
    tables.show(tables.open_console(), tables.table("", headers, rows))


def _row(runs: "Sequence[AnchorRun]", found: "Anchoring") -> list[str]:
    own = runs[0].conditions
    stack = f"{own.stack} {own.release}".strip()
    times = [each.step_s / each.predicted_step_s for each in runs if each.step_s and each.predicted_step_s]
    peaks = [
        each.memory_bytes / each.predicted_memory_bytes
        for each in runs
        if each.memory_bytes and each.predicted_memory_bytes
    ]
    return [
        f"{runs[0].model} on {own.device}, {stack}, {own.precision}", str(len(runs)), _between(times),
        *_corrected(found.step_time), _between(peaks), *_corrected(found.memory),
    ]  # fmt: skip


def _between(ratios: "Sequence[float]") -> str:
    if not ratios:
        return ""
    low, high = f"{min(ratios):.3f}", f"{max(ratios):.3f}"
    return low if low == high else f"{low} to {high}"


def _corrected(correction: "LevelCorrection | None") -> tuple[str, str]:
    """The factor, and the width that the range keeps."""
    if correction is None:
        return "", ""
    return f"x {correction.factor:.3f}", f"x {correction.width:.2f}"
