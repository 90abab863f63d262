"""Odd values in traces are refused by name, on the command line and in the browser's API."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.api.requests import CompareRequest
from trainwright.errors import BadInput
from trainwright.report.kineto import load_kineto
from trainwright.report.saved_trace import load_trace
from trainwright.report.trace_values import dims, element_count
from trainwright.web.answering import answer

ODD: tuple[dict[str, Any], ...] = (
    {"name": 5}, {"name": None}, {"cat": []}, {"ts": 1e40}, {"ts": float("nan")}, {"ts": "1"}, {"ts": True},
    {"dur": -1.0}, {"dur": 10**40}, {"args": 7},
)  # fmt: skip


def saved(**changes: Any) -> dict[str, Any]:
    thread = {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "compute"}}
    span = {"ph": "X", "name": "a", "cat": "matmul", "pid": 0, "tid": 0, "ts": 0.0, "dur": 5.0, "args": {}}
    about = {"step_s": 1e-5, "places": [[0]], "model": "m", "plan_sha256": "x", "seq": "1", "plan": "p"}
    return {"otherData": about, "traceEvents": [thread, span | changes]}


def written(folder: Path, tree: object) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps(tree), encoding="utf-8")
    return path


@pytest.mark.parametrize("odd", [*ODD, {"tid": 3}, {"tid": 10**12}, {"args": {"microbatch": 10**12}}])
def test_an_odd_value_of_a_saved_trace_is_named(odd: dict[str, Any], tmp_path: Path) -> None:
    assert load_trace(written(tmp_path, saved())).timeline.step_s == 1e-5
    with pytest.raises(BadInput, match=f"is not a trace of a step: {next(iter(odd))}|microbatch"):
        load_trace(written(tmp_path, saved(**odd)))


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_value_of_a_profilers_trace_is_named(odd: dict[str, Any], tmp_path: Path) -> None:
    events = saved(**odd)["traceEvents"]
    with pytest.raises(BadInput, match=f"is not one of PyTorch's profiler: {next(iter(odd))}"):
        load_kineto(written(tmp_path, {"traceEvents": events}))


def test_a_name_that_is_a_number_is_a_bad_question_and_no_fault_of_the_server() -> None:
    status, body = answer("compare", CompareRequest(saved(), saved(name=5)))
    assert status == 422
    assert "name 5 is not text" in json.loads(body)["error"]


def test_a_compressed_trace_that_is_damaged_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 40)
    with pytest.raises(BadInput, match="is damaged"):
        load_kineto(tmp_path / "trace.json.gz")


def test_sizes_and_counts_beyond_reason_are_unknown() -> None:
    assert dims([[2, 3], [2**40, 2**40], [-1], ["4"], 5]) == [[2, 3], [], [], [], []]
    assert [element_count(each) for each in (8, "8", 1e40, "9" * 30, None, float("nan"))] == [
        8,
        8,
        0,
        0,
        0,
        0,
    ]
