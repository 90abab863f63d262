"""Benchmarks that check something, in a small form: what they check must hold, at any speed."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.plan.recompute_modules import NAMES
from trainwright.plan.strategy import PRECISIONS

ROOT = Path(__file__).parents[2]


def benchmark(name: str, *arguments: str) -> str:
    """What a benchmark prints; it must end with 0."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), *arguments],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


# Of what an agreement on random strategies must have seen some.
KINDS = (
    "gpipe schedule", "1f1b schedule", "interleaved schedule", "zb schedule", "ZeRO-0", "ZeRO-1", "ZeRO-2",
    "ZeRO-3", "HSDP", "cp ring", "cp allgather", "cp ulysses", "sp", "ep", "etp", "selective recomputation",
    *(f"recomputed {name}" for name in NAMES), "full recomputation", "full recomputation of some layers",
    "offload optimizer", "offload activations", "offload both", *PRECISIONS, "no overlap", "other rank order",
)  # fmt: skip


def test_the_closed_form_agrees_with_its_scalar_reference() -> None:
    counts = dict(re.findall(r"^(\S.*?) +(\d+)$", benchmark("reference_agreement", "--count", "800"), re.M))
    assert {kind for kind in KINDS if int(counts.get(kind, 0)) < 10} == set()


def test_the_scalar_reference_shares_facts_with_the_closed_form_and_nothing_that_computes() -> None:
    facts = {
        "trainwright.cluster.types": {"DTYPE_BYTES"}, "trainwright.cost.collective": {"Link"},
        "trainwright.cost.gemm": {"TILES"}, "trainwright.cost.network": {"FAR_S", "level_links"},
        "trainwright.cost.state": {"HOST_UPDATE_BYTES_PER_S"}, "trainwright.estimate.types": {"Job"},
        "trainwright.plan.recompute_modules": {"MODULE"}, "trainwright.plan.strategy": {"Strategy"},
    }  # fmt: skip
    for path in (ROOT / "benchmarks" / "scalar_reference").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Import), f"{path.name}: {ast.unparse(node)}"
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if module.startswith(("trainwright.", "numpy")) and not module.startswith("trainwright.model."):
                assert {each.name for each in node.names} <= facts.get(module, set()), (
                    f"{path.name}: {module}"
                )


def test_strategies_counted_per_second_have_the_estimates_of_the_scalar_reference() -> None:
    said = benchmark("strategies_per_second", "--count", "5000", "--sample", "200", "--repeat", "1")
    assert "(200 by the reference)" in said


def test_the_engine_has_the_bytes_of_the_plain_simulator() -> None:
    sizes = ("--stages", "4", "--microbatches", "8", "--layers", "4", "--sample", "4", "--repeat", "1")
    assert "ratio" in benchmark("tasks_per_second", *sizes)


def test_a_sweep_has_the_step_times_of_clusters_one_by_one() -> None:
    said = benchmark("points_per_second", "--parts", "1", "--clusters", "4", "--least-ratio", "0")
    assert re.search(r"largest difference of best steps +0\.0e\+00", said)


def test_a_batch_is_chosen_and_searched() -> None:
    assert "llama3-8b h100:8" in benchmark("batch_target", "--repeat", "1", "--cases", "1")


def test_a_search_with_experts_takes_at_most_twice_the_time_of_one_without() -> None:
    said = benchmark("search_time", "--repeat", "2", "--devices", "2048")
    assert re.search(r"^ +2048( +\d+\.\d+){3}$", said, re.M)


def test_plans_come_to_timelines() -> None:
    assert "plan to timeline" in benchmark("plan_to_timeline", "--repeat", "1", "--smallest")


def test_losses_are_those_of_data_parallel_pytorch() -> None:
    pytest.importorskip("torch")
    rows = benchmark("run_against_torch", "--rounds", "1", "--only", "dp2 mb4").splitlines()[2:]
    assert len(rows) == 1
    assert "DistributedDataParallel" in rows[0]
