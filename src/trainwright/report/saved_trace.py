"""Traces read back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput
from trainwright.program.table import ONCE
from trainwright.report.trace import UNITS, US
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import Timeline

_REMEDY = "write one with `trainwright simulate --trace FILE` or `trainwright run --record FILE`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTrace:
    """A timeline, and what its file says of it: whether it was predicted or measured, and of which plan."""

    timeline: Timeline
    about: Mapping[str, str]


def load_trace(path: Path) -> SavedTrace:
    """The trace of a file that this program has written; what waited for what is not in it."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("trace", str(path), f"cannot be read ({error.strerror})", "check the path") from None
    except ValueError:
        raise BadInput("trace", str(path), "is not JSON", _REMEDY) from None
    try:
        return _parse(tree)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise BadInput("trace", str(path), "is not a trace of a step", _REMEDY) from None


def _parse(tree: Mapping[str, Any]) -> SavedTrace:
    other, events = tree["otherData"], tree["traceEvents"]
    units = _units(events)
    numbers = {thread: number for number, thread in enumerate(units)}
    spans = [
        Span(
            unit=numbers[each["tid"]], label=each["name"], cause=each["cat"], start_s=each["ts"] / US,
            end_s=(each["ts"] + each["dur"]) / US, microbatch=each.get("args", {}).get("microbatch", ONCE),
        )
        for each in events
        if each["ph"] == "X"
    ]  # fmt: skip
    places = [tuple(map(int, each)) for each in other["places"]]
    timeline = build_timeline(spans, list(units.values()), places, float(other["step_s"]))
    about = {key: str(value) for key, value in other.items() if key not in ("places", "step_s")}
    return SavedTrace(timeline=timeline, about=about)


def _units(events: Sequence[Mapping[str, Any]]) -> dict[int, Spot]:
    """By thread: its place and its kind."""
    return {
        each["tid"]: Spot(int(each["pid"]), UNITS.index(each["args"]["name"].partition(":")[0]))
        for each in events
        if each["ph"] == "M" and each["name"] == "thread_name"
    }
