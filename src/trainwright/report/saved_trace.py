"""Traces read back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainwright.checksum import Seal
from trainwright.errors import BadInput
from trainwright.program.table import ONCE
from trainwright.report.trace import UNITS, US
from trainwright.report.trace_values import (
    MOST_DEVICES,
    OddEvent,
    listed,
    load_tree,
    number,
    table,
    text,
    whole,
)
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import Timeline

_REMEDY = "write one with `trainwright simulate --trace FILE` or `trainwright run --record FILE`"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTrace:
    """A timeline, and what its file says of it: whether it was predicted or measured, and of which plan."""

    timeline: Timeline
    about: Mapping[str, str]
    sealed: bool = True  # whether it has a checksum, which earlier versions and other programs do not write


def load_trace(path: Path) -> SavedTrace:
    """The trace of a file that this program has written; what waited for what is not in it."""
    tree, seal = load_tree(path, _REMEDY)
    return replace(parse_trace(tree, str(path)), sealed=seal is Seal.INTACT)


def parse_trace(tree: object, source: str) -> SavedTrace:
    """The trace in a tree of plain values; errors name its source."""
    try:
        return _parse(table(tree, "trace"))
    except OddEvent as error:
        raise BadInput("trace", source, f"is not a trace of a step: {error}", _REMEDY) from None


def _parse(tree: Mapping[str, Any]) -> SavedTrace:
    other = table(tree.get("otherData"), "otherData")
    events = [table(each, "event") for each in listed(tree.get("traceEvents"), "traceEvents")]
    places = [_devices(each) for each in listed(other.get("places"), "places")]
    units = _units(events, len(places))
    numbers = {thread: at for at, thread in enumerate(units)}
    spans = [_span(each, numbers) for each in events if each.get("ph") == "X"]
    step_s = number(other, "step_s", least=0.0)
    timeline = build_timeline(spans, list(units.values()), places, step_s)
    about = {key: str(value) for key, value in other.items() if key not in ("places", "step_s")}
    return SavedTrace(timeline=timeline, about=about)


def _span(event: Mapping[str, Any], numbers: Mapping[int, int]) -> Span:
    thread = whole(event.get("tid"), "tid")
    if thread not in numbers:
        raise OddEvent(f"tid {thread} has no thread_name")
    start = number(event, "ts")
    microbatch = table(event.get("args", {}), "args").get("microbatch", ONCE)
    return Span(
        unit=numbers[thread], label=text(event, "name"), cause=text(event, "cat"), start_s=start / US,
        end_s=(start + number(event, "dur", least=0.0)) / US,
        microbatch=whole(microbatch, "microbatch", least=min(ONCE, 0)),
    )  # fmt: skip


def _devices(place: object) -> tuple[int, ...]:
    return tuple(whole(each, "device", most=MOST_DEVICES) for each in listed(place, "place"))


def _units(events: Sequence[Mapping[str, Any]], places: int) -> dict[int, Spot]:
    """By thread: its place and its kind."""
    found = {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            kind = text(table(event.get("args"), "args"), "name").partition(":")[0]
            if kind not in UNITS:
                raise OddEvent(f"thread_name {kind[:40]!r} is none of {', '.join(UNITS)}")
            place = whole(event.get("pid"), "pid", most=places - 1)
            found[whole(event.get("tid"), "tid")] = Spot(place, UNITS.index(kind))
    return found
