"""Benchmarks that check something, in a small form: what they check must hold, at whatever speed.

`strategies_per_second.py` is not among them: its scalar reference is behind the closed form.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def benchmark(name: str, *arguments: str) -> str:
    """What a benchmark prints; it must end with 0."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_engine_has_the_bytes_of_the_plain_simulator() -> None:
    sizes = ("--stages", "4", "--microbatches", "8", "--layers", "4", "--sample", "4", "--repeat", "1")
    assert "ratio" in benchmark("tasks_per_second", *sizes)


def test_a_sweep_has_the_step_times_of_clusters_one_by_one() -> None:
    said = benchmark("points_per_second", "--parts", "1", "--clusters", "4", "--least-ratio", "0")
    assert re.search(r"largest difference of best steps +0\.0e\+00", said)


def test_plans_come_to_timelines() -> None:
    assert "plan to timeline" in benchmark("plan_to_timeline", "--repeat", "1", "--smallest")


def test_losses_are_those_of_data_parallel_pytorch() -> None:
    pytest.importorskip("torch")
    rows = benchmark("run_against_torch", "--rounds", "1", "--only", "dp2 mb4").splitlines()[2:]
    assert len(rows) == 1
    assert "DistributedDataParallel" in rows[0]
