"""Timelines as traces."""

import json
from pathlib import Path

import pytest

from tests.tables import Entry, Held, build_table
from trainwright.errors import BadInput
from trainwright.program.table import COMMUNICATION, COMPUTE
from trainwright.report.trace import save_trace
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline


def two_tasks() -> Timeline:
    entries = [
        Entry(seconds=1e-3, label='op "q" F', microbatch=2),
        Entry(seconds=2e-3, lane=1, inputs=[0], cause="dp"),
    ]
    held = [Held(size=8.0, start=0, readers=[1])]
    return simulate(
        build_table(entries, lanes=(0, 1), units=((0, COMPUTE), (0, COMMUNICATION)), buffers=held)
    )


def test_a_trace_has_spans_names_and_memory(tmp_path: Path) -> None:
    save_trace(tmp_path / "trace.json", two_tasks())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    first, second = (each for each in events if each["ph"] == "X")
    assert first == {
        "ph": "X", "name": 'op "q" F', "cat": "matmul", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1000.0,
        "args": {"microbatch": 2},
    }  # fmt: skip
    assert (second["tid"], second["ts"], second["dur"], second["cat"]) == (1, 1000.0, 2000.0, "dp")
    assert [each["args"]["name"] for each in events if each["ph"] == "M"] == [
        "device 0",
        "compute",
        "communication: dp",
    ]
    arrow = [(each["ph"], each["tid"], each["ts"]) for each in events if each["ph"] in "sf"]
    assert arrow == [("s", 0, 1000.0), ("f", 1, 1000.0)]  # the second waits for the first
    memory = [(each["ts"], each["args"]) for each in events if each["ph"] == "C"]
    assert memory == [(0.0, {"activations": 8}), (3000.0, {"activations": 0})]


def test_a_trace_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        save_trace(tmp_path / "missing" / "trace.json", two_tasks())
    assert list(tmp_path.iterdir()) == []


def test_a_step_without_tasks_is_a_trace_too(tmp_path: Path) -> None:
    save_trace(tmp_path / "trace.json", simulate(build_table([])))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {each["ph"] for each in events} == {"M", "C"}
