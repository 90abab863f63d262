"""Traces read back."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.report.test_trace import two_tasks
from trainwright.errors import BadInput
from trainwright.report.kineto import load_json
from trainwright.report.saved_trace import load_trace
from trainwright.report.trace import save_trace
from trainwright.simulate.breakdown import breakdown


def test_a_trace_that_is_read_back_tells_the_same_times(tmp_path: Path) -> None:
    timeline = two_tasks()
    save_trace(tmp_path / "trace.json", timeline, {"kind": "predicted", "plan": "two"})
    saved = load_trace(tmp_path / "trace.json")
    assert saved.about == {"kind": "predicted", "plan": "two"}
    np.testing.assert_allclose(saved.timeline.start_s, timeline.start_s, atol=1e-12)
    np.testing.assert_allclose(saved.timeline.end_s, timeline.end_s, atol=1e-12)
    assert saved.timeline.step_s == timeline.step_s
    assert saved.timeline.table.labels == timeline.table.labels
    assert saved.timeline.table.microbatch.tolist() == [2, -1]
    before, after = breakdown(timeline), breakdown(saved.timeline)
    assert after.time_s.keys() == before.time_s.keys()
    for cause, seconds in before.time_s.items():
        np.testing.assert_allclose(after.time_s[cause], seconds, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half a tra", "is not JSON"),
        ("[]", "is not a trace of a step"),
        ("{}", "is not a trace of a step"),
        (json.dumps({"traceEvents": [{"ph": "X"}], "otherData": {}}), "is not a trace of a step"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        load_trace(tmp_path / "trace.json")


def test_a_trace_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none.json.*cannot be read"):
        load_trace(tmp_path / "none.json")


def test_a_flipped_bit_anywhere_in_a_trace_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    save_trace(path, two_tasks(), {"kind": "measured", "plan": "two"})
    assert load_trace(path).sealed
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        for load in (load_trace, load_json):  # the latter is asked first whose trace it is
            with pytest.raises(BadInput, match="was edited or damaged since it was written"):
                load(path)


def test_an_edited_trace_is_read_once_its_checksum_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    save_trace(path, two_tasks(), {"kind": "measured", "plan": "two"})
    table = json.loads(path.read_text())
    table["otherData"]["plan"] = "three"
    path.write_text(json.dumps(table))
    with pytest.raises(BadInput, match=r'remove its last key, "checksum", to use it as it is'):
        load_trace(path)
    del table["checksum"]
    path.write_text(json.dumps(table))
    assert load_trace(path).about["plan"] == "three"
    assert not load_trace(path).sealed
