"""Traces of PyTorch's profiler (Kineto), as measured timelines."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.errors import BadInput
from trainwright.program.table import COMMUNICATION, COMPUTE, COPY
from trainwright.report.trace import US
from trainwright.report.trace_values import (
    MOST_DEVICES,
    OddEvent,
    identity,
    listed,
    load_tree,
    number,
    table,
    text,
    whole,
)
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import COMMUNICATION_CAUSES, Timeline

_REMEDY = "write one with torch.profiler: profile(...).export_chrome_trace(FILE)"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_STEP = re.compile(r"ProfilerStep\s*#([0-9]{1,18})")
_UPDATE = re.compile(r"Optimizer\.step|multi_tensor_apply|\badam|adamw|FusedAdam|lamb_", re.IGNORECASE)
_SPEAKS = re.compile(
    r"nccl|c10d::|gloo:|_c10d_functional|all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|sendrecv",
    re.IGNORECASE,
)
# What an operator or kernel is counted as, by its name; the first that matches.
_CAUSES = (
    ("offload", re.compile(r"memcpy (htod|dtoh)", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|scaled_dot_product|efficient_attention|_attention", re.IGNORECASE)),
    (
        "matmul",
        re.compile(
            r"gemm|cutlass|nvjet|cublas|xmma|aten::(mm|addmm|bmm|baddbmm|linear|matmul|_scaled_mm|convolution)\b|"
            r"AddmmBackward|MmBackward|BmmBackward|mkldnn_linear",
            re.IGNORECASE,
        ),
    ),
)
# What the name of a process group says it is for.
_GROUPS = (
    ("ep", re.compile(r"expert|\bep\b|_ep", re.IGNORECASE)),
    ("tp", re.compile(r"tensor|\btp\b|_tp", re.IGNORECASE)),
    ("cp", re.compile(r"context|\bcp\b|_cp$", re.IGNORECASE)),
    ("pp", re.compile(r"pipe|\bpp\b|_pp", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that ran, from when to when on the profiler's clock."""

    name: str
    category: str
    thread: tuple[object, object]
    start_s: float
    end_s: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kineto:
    """What one process recorded."""

    rank: int
    events: tuple[Event, ...]
    shapes: bool  # whether it holds the sizes of what operators read

    @property
    def on_device(self) -> bool:
        """Whether kernels of a device were recorded, not only operators of the host."""
        return any(event.category in _ON_DEVICE for event in self.events)


def is_kineto(tree: object) -> bool:
    """Whether a JSON is the profiler's."""
    return isinstance(tree, Mapping) and "traceEvents" in tree and "otherData" not in tree


def load_json(path: Path) -> object:
    """The JSON of a trace, compressed or not."""
    return load_tree(path, _REMEDY)[0]


def load_kineto(path: Path) -> Kineto:
    """The profiler's trace in a file."""
    return parse_kineto(load_json(path), str(path))


def parse_kineto(tree: object, source: str) -> Kineto:
    """The profiler's trace in a tree of plain values; errors name its source."""
    if not is_kineto(tree):
        raise BadInput("trace", source, "is none of PyTorch's profiler", _REMEDY)
    assert isinstance(tree, Mapping)
    try:
        events = tuple(_events(listed(tree["traceEvents"], "traceEvents")))
        job = table(tree.get("distributedInfo") or {}, "distributedInfo")
        rank = whole(job.get("rank", 0), "rank", most=MOST_DEVICES)
    except OddEvent as error:
        raise BadInput("trace", source, f"is not one of PyTorch's profiler: {error}", _REMEDY) from None
    if not events:
        raise BadInput("trace", source, "has no events", "record at least one step")
    shapes = any("Input Dims" in event.about for event in events)
    return Kineto(rank=rank, events=events, shapes=shapes)


def _events(found: Sequence[object]) -> Iterator[Event]:
    for each in found:
        event = table(each, "event")
        if event.get("ph") == "X" and event.get("cat") != "Trace":
            start = number(event, "ts") / US
            yield Event(
                name=text(event, "name"), category=text(event, "cat", ""),
                thread=(identity(event.get("pid")), identity(event.get("tid"))), start_s=start,
                end_s=start + number(event, "dur", least=0.0) / US,
                about=table(event.get("args") or {}, "args"),
            )  # fmt: skip


def step_window(trace: Kineto, step: int | None = None) -> tuple[float, float]:
    """From when to when a step ran: the one asked for, else the last of those marked, else all."""
    found: dict[int, tuple[float, float]] = {}
    for category in ("user_annotation", "gpu_user_annotation"):  # the device's own marks count more
        for event in trace.events:
            mark = _STEP.match(event.name)
            if mark and event.category == category:
                found[int(mark[1])] = (event.start_s, event.end_s)
    if step is not None and step not in found:
        listed = ", ".join(map(str, sorted(found))) or "none"
        raise BadInput("--step", step, f"is not in the trace, which has {listed}", "choose one of them")
    if found:
        return found[max(found) if step is None else step]
    return min(each.start_s for each in trace.events), max(each.end_s for each in trace.events)


def measured_timeline(traces: Sequence[Kineto], step: int | None = None) -> Timeline:
    """One step of some ranks: each is a place with units that compute, communicate and copy."""
    spans: list[Span] = []
    places: list[tuple[int, ...]] = []
    longest = 0.0
    for trace in sorted(traces, key=lambda each: each.rank):
        start, end = step_window(trace, step)
        longest = max(longest, end - start)
        unit = 3 * len(places)
        places.append((trace.rank,))
        for name, cause, low, high in ran(trace, (start, end)):
            kind = COPY if cause == "offload" else COMMUNICATION if cause in COMMUNICATION_CAUSES else COMPUTE
            spans.append(
                Span(unit=unit + kind, label=name, cause=cause, start_s=low - start, end_s=high - start)
            )
    if len({*places}) < len(places):
        raise BadInput("traces", str(places), "are of one rank", "name one trace for each rank")
    units = [Spot(place, kind) for place in range(len(places)) for kind in (COMPUTE, COMMUNICATION, COPY)]
    return build_timeline(spans, units, places, longest)


def ran(trace: Kineto, window: tuple[float, float]) -> Iterator[tuple[str, str, float, float]]:
    """What ran in a window: name, cause, from when to when; kernels if there are any, else operators."""
    updates = [
        (event.start_s, event.end_s)
        for event in trace.events
        if event.category.endswith("user_annotation") and _UPDATE.search(event.name)
    ]
    pieces = _kernels(trace) if trace.on_device else _own_pieces(trace)
    for event, low, high in pieces:
        low, high = max(low, window[0]), min(high, window[1])
        if high > low:
            updating = any(start <= low and high <= end for start, end in updates)
            yield event.name, "optimizer" if updating else cause_of(event), low, high


def cause_of(event: Event) -> str:
    """What the time of a kernel or an operator is counted as."""
    if event.about.get("Collective name") or _SPEAKS.search(event.name):
        return _group_cause(event)
    if _UPDATE.search(event.name):
        return "optimizer"
    return next((cause for cause, pattern in _CAUSES if pattern.search(event.name)), "streaming")


def _group_cause(event: Event) -> str:
    said = " ".join(str(event.about.get(f"Process Group {key}", "")) for key in ("Description", "Name"))
    for cause, pattern in _GROUPS:
        if pattern.search(said):
            return cause
    return "pp" if re.search(r"send|recv", event.name, re.IGNORECASE) else "dp"


def _kernels(trace: Kineto) -> Iterator[tuple[Event, float, float]]:
    for event in trace.events:
        if event.category in _ON_DEVICE:
            yield event, event.start_s, event.end_s


def _own_pieces(trace: Kineto) -> Iterator[tuple[Event, float, float]]:
    """Of each operator on the host, the parts of its time in which none that it calls runs."""
    threads: dict[object, list[Event]] = {}
    for event in trace.events:
        if event.category == "cpu_op":
            threads.setdefault(event.thread, []).append(event)
    for events in threads.values():
        events.sort(key=lambda event: (event.start_s, -event.end_s))
        open_: list[tuple[Event, float]] = []  # with how far its own time has been told
        for event in events:
            while open_ and open_[-1][0].end_s <= event.start_s:
                yield from _closed(open_)
            if open_:
                outer, told = open_[-1]
                if event.start_s > told:
                    yield outer, told, event.start_s
                open_[-1] = (outer, max(told, event.end_s))
            open_.append((event, event.start_s))
        while open_:
            yield from _closed(open_)


def _closed(open_: list[tuple[Event, float]]) -> Iterator[tuple[Event, float, float]]:
    event, told = open_.pop()
    if event.end_s > told:
        yield event, told, event.end_s
