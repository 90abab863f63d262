"""Traces read back."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.unit.report.test_trace import two_tasks
from trainwright.errors import BadInput
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
