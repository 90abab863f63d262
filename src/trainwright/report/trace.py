"""A timeline as a trace that Perfetto and Chrome open: a process per place, threads of what it does."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainwright.checksum import seal_pieces
from trainwright.output_file import save_pieces
from trainwright.plan.text import render_plan
from trainwright.program.lower import Program
from trainwright.program.table import CATEGORIES, ONCE, Ints
from trainwright.report.drawing import render_devices
from trainwright.simulate.memory import curve
from trainwright.simulate.timeline import COMMUNICATION_CAUSES, Timeline

UNITS = ("compute", "communication", "copy")  # by kind
_CHUNK = 4096  # events that are written at once
US = 1e6  # traces count microseconds
_MOST_ARROWS = 100_000  # of a trace: viewers are slow beyond


def describe(program: Program, kind: str) -> dict[str, str]:
    """What a trace says of itself: whether it is predicted or measured, and of which plan of which model."""
    plan, setting = program.plan, program.setting
    digest = hashlib.sha256(render_plan(replace(plan, name="")).encode()).hexdigest()
    return {
        "kind": kind, "model": setting.graph.name, "seq": str(setting.seq), "plan": plan.name,
        "plan_sha256": digest,
    }  # fmt: skip


def save_trace(path: Path, timeline: Timeline, about: Mapping[str, str] | None = None) -> None:
    """Write a trace, piece by piece."""
    save_pieces(path, (piece.encode() for piece in render_trace(timeline, about or {})))


def render_trace(timeline: Timeline, about: Mapping[str, str]) -> Iterator[str]:
    """The JSON of a trace, in pieces; `otherData` has what it needs to be read back, the end a checksum."""
    return seal_pieces(_pieces(timeline, about))


def _pieces(timeline: Timeline, about: Mapping[str, str]) -> Iterator[str]:
    """The JSON of a trace without its closing brace."""
    other = {**about, "step_s": timeline.step_s, "places": timeline.table.places}
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(other) + ',"traceEvents":[\n'
    separator = ""
    for chunk in _chunks(_events(timeline)):
        yield separator + ",\n".join(chunk)
        separator = ",\n"
    yield "\n]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Threads:
    """The rows of a trace: what each unit does itself, and each cause for which it communicates."""

    of_task: Ints
    names: tuple[str, ...]
    places: tuple[int, ...]


def _threads(timeline: Timeline) -> _Threads:
    """Every unit has a thread, used or not; more for the causes of communication that it serves."""
    table = timeline.table
    groups = np.array([each if each in COMMUNICATION_CAUSES else "" for each in table.causes], dtype=object)
    codes = {name: number for number, name in enumerate(("", *COMMUNICATION_CAUSES))}
    code = np.array([codes[each] for each in groups], np.int64)
    unit = table.lane_unit[table.lane].astype(np.int64)
    key = unit * len(codes) + (code[table.label] if len(table) else 0)
    every = np.arange(len(table.unit_kind)) * len(codes)
    keys = np.union1d(every[_used(timeline, key, every)], key)
    names = list(codes)
    labels = [
        UNITS[table.unit_kind[each // len(codes)]]
        + (f": {names[each % len(codes)]}" if each % len(codes) else "")
        for each in keys.tolist()
    ]
    return _Threads(
        of_task=np.searchsorted(keys, key).astype(np.int32), names=tuple(labels),
        places=tuple(int(table.unit_place[each // len(codes)]) for each in keys.tolist()),
    )  # fmt: skip


def _used(timeline: Timeline, key: NDArray[np.int64], every: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Units with work of their own, and those without any."""
    busy = np.unique(timeline.table.lane_unit[timeline.table.lane])
    idle = ~np.isin(np.arange(len(every)), busy)
    return np.isin(every, key) | idle


def _events(timeline: Timeline) -> Iterator[str]:
    threads = _threads(timeline)
    yield from _names(timeline, threads)
    yield from _spans(timeline, threads)
    yield from _arrows(timeline, threads)
    for place in range(len(timeline.table.places)):
        yield from _memory(timeline, place)


def _names(timeline: Timeline, threads: _Threads) -> Iterator[str]:
    for place, devices in enumerate(timeline.table.places):
        yield _named("process_name", place, 0, render_devices(devices))
    for thread, (place, name) in enumerate(zip(threads.places, threads.names, strict=True)):
        yield _named("thread_name", place, thread, name)


def _named(what: str, place: int, thread: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": what, "pid": place, "tid": thread, "args": {"name": name}})


def _spans(timeline: Timeline, threads: _Threads) -> Iterator[str]:
    table = timeline.table
    names, causes = [json.dumps(each) for each in table.labels], [json.dumps(each) for each in table.causes]
    columns = (
        table.label, table.microbatch, threads.of_task, table.unit_place[table.lane_unit[table.lane]],
        timeline.start_s * US, (timeline.end_s - timeline.start_s) * US,
    )  # fmt: skip
    for label, microbatch, thread, place, start, duration in zip(*(c.tolist() for c in columns), strict=True):
        args = "" if microbatch == ONCE else f',"args":{{"microbatch":{microbatch}}}'
        yield (
            f'{{"ph":"X","name":{names[label]},"cat":{causes[label]},"pid":{place},"tid":{thread},'
            f'"ts":{start:.6f},"dur":{duration:.6f}{args}}}'
        )


def _arrows(timeline: Timeline, threads: _Threads) -> Iterator[str]:
    """For each task that waited for another thread, an arrow from what it waited for last."""
    table = timeline.table
    counts = np.diff(table.first_input)
    target = np.repeat(np.arange(len(table)), counts)
    order = np.lexsort((timeline.end_s[table.inputs], target))
    last = order[np.cumsum(counts)[counts > 0] - 1]
    source, target = table.inputs[last], target[last]
    across = np.flatnonzero(threads.of_task[source] != threads.of_task[target])
    for number, each in enumerate(across[:_MOST_ARROWS].tolist()):
        for phase, task, at_s in (("s", source[each], timeline.end_s), ("f", target[each], timeline.start_s)):
            thread = int(threads.of_task[task])
            bound = ',"bp":"e"' if phase == "f" else ""
            yield (
                f'{{"ph":"{phase}","name":"waits for","cat":"dependency","id":{number},'
                f'"pid":{threads.places[thread]},"tid":{thread},"ts":{at_s[task] * US:.6f}{bound}}}'
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
