import json
import os
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.runtime.launching import ROOT, torchrun

COUNT = int(os.environ.get("BIT_FLIPS", "8"))  # `make test-bit-flips` sets 100
OF_A_RUN = 20  # at most: each run has a time limit
RUNS = [min(OF_A_RUN, COUNT - first) for first in range(0, COUNT, OF_A_RUN)]


@pytest.fixture(scope="module", params=enumerate(RUNS), ids=lambda run: f"run{run[0]}")
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The losses of an undisturbed run, then what each resume from a damaged checkpoint of it did."""
    seed, count = request.param
    path = tmp_path_factory.mktemp("flips")
    script = str(ROOT / "tests" / "runtime" / "bit_flips.py")
    result = torchrun(2, script, str(path), str(count), str(seed))
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in (path / "found.jsonl").read_text().splitlines()]
    assert len(found) == 1 + count
    return found


def test_every_flipped_bit_is_detected_and_named(lines: list[dict[str, Any]]) -> None:
    for each in lines[1:]:
        assert each["said"].count("\n") == 1, each
        assert f"step-{each['step']:08d} is damaged ({each['file']}" in each["said"], each


def test_every_process_resumes_from_the_checkpoint_before(lines: list[dict[str, Any]]) -> None:
    for each in lines[1:]:
        assert each["resumed"] == [[each["step"] - 1, each["step"] + 2]] * 2, each


def test_training_goes_on_with_the_losses_of_an_undisturbed_run(lines: list[dict[str, Any]]) -> None:
    undisturbed = lines[0]["undisturbed"]
    for each in lines[1:]:
        expected = undisturbed[each["step"] - 1 : each["step"] + 2]  # of the step that is taken again, and on
        if each["plan"] == "dp2":
            assert each["losses"] == expected, each
        else:  # sums are made in another order
            assert each["losses"] == pytest.approx(expected, abs=1e-5), each
