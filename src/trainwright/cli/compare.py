"""`trainwright compare`: a predicted and a measured step side by side."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainwright.report.comparison import Comparison, Pair
    from trainwright.report.saved_trace import SavedTrace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("predicted", metavar="PREDICTED", help="a trace that `simulate --trace` has written")
    parser.add_argument(
        "measured", metavar="MEASURED", nargs="+",
        help="a trace that `run --record` has written, or traces of PyTorch's profiler, one for each rank",
    )  # fmt: skip
    parser.add_argument("--step", metavar="N", help="of a profiler's trace: which step (default: the last)")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="JSON, to a file or standard output"
    )


def run(options: argparse.Namespace) -> int:
    """Read both, compare, write and show."""
    from trainwright.output_file import save_text
    from trainwright.report.files import render_json

    step = _parse_step(options.step)
    compared = _compared(Path(options.predicted), [Path(each) for each in options.measured], step)
    for path in compared.unsealed:
        print(f"trainwright: {path} has no checksum: it is not verified", file=sys.stderr)
    text = render_json(_tree(compared))
    if options.json and options.json != "-":
        save_text(Path(options.json), text)
    if options.json == "-":
        print(text, end="")
    else:
        _show(compared)
    return 0


class _Compared(NamedTuple):
    about: "Mapping[str, str]"
    cost: str  # what the prediction rests on
    comparison: "Comparison"
    unsealed: tuple[str, ...] = ()  # files of ours without a checksum


def tree_of(predicted: Path, measured: Path) -> dict[str, object]:
    """Two saved traces compared, as plain values."""
    return _tree(_compared(predicted, [measured], None))


def _compared(predicted_path: Path, measured_paths: "Sequence[Path]", step: int | None) -> _Compared:
    from trainwright.report.comparison import compare
    from trainwright.report.saved_trace import load_trace

    predicted = load_trace(predicted_path)
    measured = _measured(measured_paths, step, predicted)
    comparison = compare(predicted.timeline, measured.timeline)
    read = ((predicted_path, predicted), (measured_paths[0], measured))
    unsealed = tuple(str(path) for path, trace in read if not trace.sealed)
    return _Compared(measured.about, predicted.about.get("cost", ""), comparison, unsealed)


def _measured(paths: "Sequence[Path]", step: int | None, predicted: "SavedTrace") -> "SavedTrace":
    """What was measured: our own record of the same plan, or what the profiler saw of some ranks."""
    from trainwright.errors import BadInput
    from trainwright.report.comparison import check_same
    from trainwright.report.kineto import is_kineto, load_json, load_kineto, measured_timeline
    from trainwright.report.saved_trace import SavedTrace, load_trace

    if is_kineto(load_json(paths[0])):
        timeline = measured_timeline([load_kineto(path) for path in paths], step)
        about = {**predicted.about, "kind": "measured", "profiler": "kineto"}
        return SavedTrace(timeline=timeline, about=about)
    if step is not None:
        rule = "is of a profiler's trace, and one of our own holds a single step"
        raise BadInput("--step", step, rule, "leave it out")
    if len(paths) > 1:
        raise BadInput("MEASURED", len(paths), "traces of our own hold all processes in one", "name one")
    measured = load_trace(paths[0])
    check_same(predicted, measured)
    return measured


def _parse_step(text: str | None) -> int | None:
    from trainwright.units import parse_whole

    if text is None or text == "0":
        return None if text is None else 0
    return parse_whole(text, "--step")


def _tree(compared: _Compared) -> dict[str, object]:
    """The comparison as plain values, differences included."""
    comparison = compared.comparison
    total_s = comparison.step.difference_s
    return {
        "about": compared.about,
        "cost": compared.cost,
        "step": _pair(comparison.step, total_s),
        "causes": [_pair(each, total_s) for each in comparison.causes],
        "lanes": {
            device: [_pair(each, total_s) for each in pairs] for device, pairs in comparison.lanes.items()
        },
        "tasks": [_pair(each, total_s) for each in comparison.tasks],
    }


def _pair(pair: "Pair", total_s: float) -> dict[str, object]:
    return {
        "name": pair.name, "predicted_s": pair.predicted_s, "measured_s": pair.measured_s,
        "difference_s": pair.difference_s, "share": pair.difference_s / total_s if total_s else 0.0,
    }  # fmt: skip


def _show(compared: _Compared) -> None:
    from trainwright.report import tables

    about, cost, comparison, _ = compared
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
