"""Runs of a user's own: measured, saved, and taken by every command that predicts by them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import trainwright
from tests.commands import fails
from tests.commands import trainwright as run
from tests.unit.validate.test_anchor_runs import row, write

STRATEGY = ("dp32", "tp2", "mb1", "zero1", "--batch", "128")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write(tmp_path / "my_runs.csv", row("a", "2.5", "58"), row("b", "2.52"))


def answer(*words: str) -> dict[str, Any]:
    result = run(*words, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_what_calibrate_writes_plan_simulate_and_validate_take(table: Path, tmp_path: Path) -> None:
    saved = tmp_path / "anchor.toml"
    made = run("calibrate", "h100:64", "--runs", str(table), "--out", str(saved))
    assert made.returncode == 0, made.stderr
    assert "--runs" in made.stdout
    plans = {
        name: answer("plan", "llama3-8b", "h100:64", "--batch", "128", "--top", "1", *words)
        for name, words in {"none": (), "csv": ("--runs", str(table)), "toml": ("--runs", str(saved))}.items()
    }
    (usual,), (best,), (from_file,) = (plans[name]["plans"] for name in ("none", "csv", "toml"))
    assert plans["none"]["anchor"] is None
    factor = plans["csv"]["anchor"]["step_time"]["factor"]
    assert best["step_s"] == pytest.approx(factor * usual["step_s"])
    assert best["step_s"] == pytest.approx(from_file["step_s"], rel=1e-6)
    assert best["high_s"] / best["low_s"] < usual["high_s"] / usual["low_s"]
    assert best["high_bytes"] / best["low_bytes"] < usual["high_bytes"] / usual["low_bytes"]
    notes = [each for each in plans["csv"]["notes"] if each.startswith("Anchored to my_runs.csv")]
    assert len(notes) == 1
    assert f"x {factor:.3f}" in notes[0]
    assert "2 runs (2 of this model)" in notes[0]

    usual, anchored = (
        answer("simulate", "llama3-8b", "h100:64", *STRATEGY, *words)
        for words in ((), ("--runs", str(saved)))
    )
    assert anchored["step_s"] == pytest.approx(anchored["anchor"]["step_time"]["factor"] * usual["step_s"])

    before, after = (answer("validate", str(table), *words) for words in ((), ("--runs", str(saved))))
    assert after["anchor"] == {"file": "anchor.toml", "runs": 2, "rows": 2}
    assert after["errors"]["source"][-1]["median"] < before["errors"]["source"][-1]["median"]


def test_a_job_that_no_run_matches_stays_and_says_so(table: Path) -> None:
    words = ("simulate", "llama3-8b", "h100:64", *STRATEGY, "--stack", "torchtitan")
    usual, found = answer(*words), answer(*words, "--runs", str(table))
    assert found["step_s"] == usual["step_s"]
    assert found["anchor"]["step_time"] is None
    assert (
        "Not anchored: none of the 2 runs of my_runs.csv is of torchtitan on hopper devices."
        in found["notes"]
    )


def test_the_library_takes_runs(table: Path) -> None:
    usual = trainwright.simulate("llama3-8b", "h100:64", "dp32 tp2 mb1 zero1", batch=128)
    found = trainwright.simulate("llama3-8b", "h100:64", "dp32 tp2 mb1 zero1", batch=128, runs=table)
    assert found.step_s > usual.step_s


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cost", "roofline"), "--runs .*corrects calibrated constants, and operator times are roofline"),
        (
            ("--fix", "precision=bf16,fp8"),
            "--runs .*corrects 16-bit and fp8 differently; state one precision",
        ),
    ],
)
def test_what_runs_cannot_correct_is_refused(table: Path, words: tuple[str, ...], message: str) -> None:
    said = fails("plan", "llama3-8b", "h100:64", "--batch", "128", "--runs", str(table), *words)
    assert re.search(message, said)


def test_calibrate_takes_traces_or_runs(table: Path) -> None:
    both = fails("calibrate", "h100:64", "--runs", str(table), "--from", "trace.json")
    assert "--from" in both
    assert "not allowed with" in both
    assert "needs traces or runs; state --from or --runs" in fails("calibrate", "h100:64")


def test_runs_of_another_family_are_not_of_the_cluster(table: Path) -> None:
    said = fails("calibrate", "a100:64", "--runs", str(table))
    assert "has runs on hopper devices, and a100:64 is of ampere" in said


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    assert "none.csv" in fails("calibrate", "h100:8", "--runs", str(tmp_path / "none.csv"))
