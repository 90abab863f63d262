"""The answer to a request for a predicted and a measured step side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from trainwright.api.fields import FilePath
from trainwright.api.requests import CompareRequest
from trainwright.api.result import Result, Rows
from trainwright.errors import BadInput
from trainwright.report.comparison import Comparison, Pair, check_same, compare
from trainwright.report.kineto import is_kineto, load_json, measured_timeline, parse_kineto
from trainwright.report.saved_trace import SavedTrace, load_trace, parse_trace
from trainwright.units import parse_whole

_Trace = FilePath | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSteps(Result, schema="compare/1"):
    """A measured step compared with the predicted one: what differs, by cause, device and task."""

    about: Mapping[str, str]
    cost: str  # what the prediction rests on
    comparison: Comparison
    unsealed: tuple[str, ...] = ()  # files of ours without a checksum

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright compare --json` writes, differences included."""
        comparison = self.comparison
        total_s = comparison.step.difference_s
        return {
            "about": self.about,
            "cost": self.cost,
            "step": _pair(comparison.step, total_s),
            "causes": [_pair(each, total_s) for each in comparison.causes],
            "lanes": {
                device: [_pair(each, total_s) for each in pairs] for device, pairs in comparison.lanes.items()
            },
            "tasks": [_pair(each, total_s) for each in comparison.tasks],
        }

    def rows(self) -> Rows:
        """A row for each cause."""
        total_s = self.comparison.step.difference_s
        return [_pair(each, total_s) for each in self.comparison.causes]


def answer_compare(request: CompareRequest) -> ComparedSteps:
    """Both steps, read and compared."""
    stated, given = request.step, request.measured
    step = None if stated is None else 0 if stated in (0, "0") else parse_whole(stated, "--step")
    paths = [given] if isinstance(given, str | PathLike | Mapping) else list(given)
    predicted = _load(request.predicted, "predicted.json")
    measured = _measured(paths, step, predicted)
    read = ((request.predicted, predicted), (paths[0], measured))
    return ComparedSteps(
        about=measured.about, cost=predicted.about.get("cost", ""),
        comparison=compare(predicted.timeline, measured.timeline),
        unsealed=tuple(str(path) for path, trace in read if not trace.sealed),
    )  # fmt: skip


def _load(trace: _Trace, name: str) -> SavedTrace:
    return parse_trace(trace, name) if isinstance(trace, Mapping) else load_trace(Path(trace))


def _measured(paths: Sequence[_Trace], step: int | None, predicted: SavedTrace) -> SavedTrace:
    """What was measured: our own record of the same plan, or what the profiler saw of some ranks."""
    if is_kineto(_tree(paths[0])):
        seen = [parse_kineto(_tree(path), _name(path)) for path in paths]
        about = {**predicted.about, "kind": "measured", "profiler": "kineto"}
        return SavedTrace(timeline=measured_timeline(seen, step), about=about)
    if step is not None:
        rule = "is of a profiler's trace, and one of our own holds a single step"
        raise BadInput("--step", step, rule, "leave it out")
    if len(paths) > 1:
        raise BadInput("MEASURED", len(paths), "traces of our own hold all processes in one", "name one")
    measured = _load(paths[0], "measured.json")
    check_same(predicted, measured)
    return measured


def _tree(trace: _Trace) -> object:
    return trace if isinstance(trace, Mapping) else load_json(Path(trace))


def _name(trace: _Trace) -> str:
    return "measured.json" if isinstance(trace, Mapping) else str(trace)


def _pair(pair: Pair, total_s: float) -> dict[str, object]:
    return {
        "name": pair.name, "predicted_s": pair.predicted_s, "measured_s": pair.measured_s,
        "difference_s": pair.difference_s, "share": pair.difference_s / total_s if total_s else 0.0,
    }  # fmt: skip
