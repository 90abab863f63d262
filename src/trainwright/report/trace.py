"""A timeline as a trace that Perfetto and Chrome open: a process per place, a thread per unit."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from trainwright.errors import BadInput
from trainwright.plan.text import render_plan
from trainwright.program.lower import Program
from trainwright.program.table import CATEGORIES, ONCE
from trainwright.report.drawing import render_devices
from trainwright.simulate.memory import curve
from trainwright.simulate.timeline import Timeline

UNITS = ("compute", "communication", "copy")  # by kind
_CHUNK = 4096  # events that are written at once
US = 1e6  # traces count microseconds


def describe(program: Program, kind: str) -> dict[str, str]:
    """What a trace says of itself: whether it is predicted or measured, and of which plan of which model."""
    plan, setting = program.plan, program.setting
    digest = hashlib.sha256(render_plan(replace(plan, name="")).encode()).hexdigest()
    return {
        "kind": kind, "model": setting.graph.name, "seq": str(setting.seq), "plan": plan.name,
        "plan_sha256": digest,
    }  # fmt: skip


def save_trace(path: Path, timeline: Timeline, about: Mapping[str, str] | None = None) -> None:
    """Write a trace, piece by piece under a temporary name, then rename it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(render_trace(timeline, about or {}))
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise BadInput(
            "file", str(path), f"cannot be written ({error.strerror})", "choose another path"
        ) from None


def render_trace(timeline: Timeline, about: Mapping[str, str]) -> Iterator[str]:
    """The JSON of a trace, in pieces; `otherData` has what it needs to be read back."""
    other = {**about, "step_s": timeline.step_s, "places": timeline.table.places}
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(other) + ',"traceEvents":[\n'
    separator = ""
    for chunk in _chunks(_events(timeline)):
        yield separator + ",\n".join(chunk)
        separator = ",\n"
    yield "\n]}\n"


def _events(timeline: Timeline) -> Iterator[str]:
    yield from _names(timeline)
    yield from _spans(timeline)
    for place in range(len(timeline.table.places)):
        yield from _memory(timeline, place)


def _names(timeline: Timeline) -> Iterator[str]:
    table = timeline.table
    for place, devices in enumerate(table.places):
        yield _named("process_name", place, 0, render_devices(devices))
    for unit, (place, kind) in enumerate(
        zip(table.unit_place.tolist(), table.unit_kind.tolist(), strict=True)
    ):
        yield _named("thread_name", place, unit, UNITS[kind])


def _named(what: str, place: int, unit: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": place, "tid": unit, "args": {"name": name}})


def _spans(timeline: Timeline) -> Iterator[str]:
    table = timeline.table
    names, causes = [json.dumps(each) for each in table.labels], [json.dumps(each) for each in table.causes]
    unit = table.lane_unit[table.lane]
    columns = (
        table.label, table.microbatch, unit, table.unit_place[unit],
        timeline.start_s * US, (timeline.end_s - timeline.start_s) * US,
    )  # fmt: skip
    for label, microbatch, thread, place, start, duration in zip(*(c.tolist() for c in columns), strict=True):
        args = "" if microbatch == ONCE else f',"args":{{"microbatch":{microbatch}}}'
        yield (
            f'{{"ph":"X","name":{names[label]},"cat":{causes[label]},"pid":{place},"tid":{thread},'
            f'"ts":{start:.6f},"dur":{duration:.6f}{args}}}'
        )


def _memory(timeline: Timeline, place: int) -> Iterator[str]:
    held = curve(timeline, place)
    used = [each for each in range(len(CATEGORIES)) if held.category_bytes[each].any()]
    for time, row in zip((held.time_s * US).tolist(), held.category_bytes[used].T.tolist(), strict=True):
        args = ",".join(f'"{CATEGORIES[each]}":{value:.0f}' for each, value in zip(used, row, strict=True))
        yield f'{{"ph":"C","name":"memory","pid":{place},"ts":{time:.6f},"args":{{{args}}}}}'


def _chunks(events: Iterable[str]) -> Iterator[list[str]]:
    chunk = []
    for event in events:
        chunk.append(event)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    yield chunk
