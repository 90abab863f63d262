import json
from pathlib import Path

import pytest

from trainwright.errors import BadInput
from trainwright.runtime.metrics import Metrics


def written(path: Path, first: int, last: int) -> list[int]:
    """The steps in a file after a run that went on after one step and was cut off after another."""
    metrics = Metrics(path=path)
    metrics.open(first)
    for step in range(first + 1, last + 1):
        metrics.write(step, {"loss": 1.0 / step})
    metrics.close()
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_run_that_goes_on_writes_over_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a.jsonl"
    assert written(path, 0, 5) == [1, 2, 3, 4, 5]
    with path.open("a") as file:
        file.write('{"step": 6, "lo')  # as a killed process leaves it
    assert written(path, 3, 4) == [1, 2, 3, 4]


def test_a_run_from_the_start_leaves_nothing_of_another(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", 0, 5)
    assert written(tmp_path / "a.jsonl", 0, 2) == [1, 2]


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="--metrics"):
        Metrics(path=tmp_path / "file" / "a.jsonl").open(0)


def test_a_line_that_is_no_longer_text_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, 0, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1].replace(b"step", b"ste\xf0") + lines[2])
    assert written(path, 3, 4) == [1, 3, 4]
