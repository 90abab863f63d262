"""`trainwright compare` as users run it."""

import json
from pathlib import Path

import pytest

from tests.commands import fails, trainwright


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A predicted step; it stands for a measured one as well."""
    path = tmp_path_factory.mktemp("traces") / "tp2.json"
    result = trainwright("simulate", "gpt2", "h100:2", "tp2 mb1", "--batch", "2", "--trace", str(path))
    assert result.returncode == 0, result.stderr
    return path


def test_a_step_is_compared_cause_by_cause_and_lane_by_lane(trace: Path) -> None:
    result = trainwright("compare", str(trace), str(trace))
    assert result.returncode == 0, result.stderr
    for words in ("predicted", "measured", "matmul", "tp", "step", "device 1 compute", "layer/ffn.up F"):
        assert words in result.stdout


def test_json_has_the_differences_and_their_shares(trace: Path, tmp_path: Path) -> None:
    tree = json.loads(trace.read_text())
    tree["otherData"]["step_s"] += 1.0  # one second of waiting at the end
    slower = tmp_path / "slower.json"
    slower.write_text(json.dumps(tree))
    assert "was edited or damaged since it was written" in fails("compare", str(trace), str(slower))
    del tree["checksum"]
    slower.write_text(json.dumps(tree))
    result = trainwright("compare", str(trace), str(slower), "--json")
    assert "slower.json has no checksum: it is not verified" in result.stderr
    found = json.loads(result.stdout)
    assert found["step"]["difference_s"] == pytest.approx(1.0)
    assert found["causes"][0]["name"] == "bubble"
    assert found["causes"][0]["share"] == pytest.approx(1.0)


def test_a_file_that_is_no_trace_is_one_line(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a trace")
    assert "is not JSON" in fails("compare", str(trace), str(tmp_path / "notes.txt"))
