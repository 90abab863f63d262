"""`trainwright run --algorithm`, as users start it and as machines end it."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.runtime import launching as launched
from trainwright.algorithm.registry import parse_algorithm
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.islands import set_apart
from trainwright.plan.plan import Plan
from trainwright.plan.text import render_plan
from trainwright.program.meetings import build_apartness, round_messages
from trainwright.runtime.shelf import kept_checkpoints

pytestmark = pytest.mark.timeout(1200)  # several runs follow each other
STEPS = 48
ALGORITHMS = {"ist": "ist every=4 coverage=0.5", "diloco": "diloco every=4"}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def arguments(directory: Path, name: str, algorithm: str, workers: int = 3, steps: int = STEPS) -> list[str]:
    return launched.apart(directory, name, algorithm, workers, steps)


@pytest.mark.parametrize("name", ["diloco", "ist"] if os.environ.get("THOROUGH") else ["ist"])
def test_a_run_of_a_plan_of_islands_tells_as_many_bytes_as_the_plan_says(name: str, tmp_path: Path) -> None:
    model, file, metrics = launched.build_model(tmp_path), tmp_path / "two.plan", tmp_path / "two.jsonl"
    algorithm = parse_algorithm(f"{name} every=4")
    inner = Plan(name="dp1", devices=1, batch=2, microbatches=2, precision="fp32")
    file.write_text(render_plan(set_apart(inner, algorithm, 2)), encoding="utf-8")
    result = launched.run(model, str(file), "--steps", "8", "--metrics", str(metrics))
    assert result.returncode == 0, result.stderr
    assert f"by {name} every=4" in result.stdout
    assert "on 2 workers" in result.stdout
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    measured = [line["told_bytes"] for line in lines if "told_bytes" in line]
    apart = build_apartness(build_graph(load_model(model)), 16, algorithm, 2)
    planned = sum(each.bytes for _, messages in round_messages(apart) for each in messages)
    fetched = 0 if name == "diloco" else sum(each.elements for each in apart.anatomy.partitioned) / 2 * 4
    assert measured == [planned - fetched, planned]  # the first slices are there


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_worker_that_is_killed_is_survived_by_the_others(name: str, tmp_path: Path) -> None:
    metrics = tmp_path / f"{name}.jsonl"
    launched.hold(metrics, 12)
    process = launched.start_held(*arguments(tmp_path, name, ALGORITHMS[name]), "--elastic")
    launched.wait_for_step(process, metrics, 12)
    victim = launched.ranks_of(process)[1]
    launched.kill(victim)
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "(SIGKILL); going on with 2 of 3 workers" in result.stderr
    assert "2 workers go on after step" in result.stdout
    losses = launched.losses(metrics)
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))  # none twice, none left out
    assert losses[-1][1] < 0.65 * losses[0][1]
    (last,) = [each for each in kept_checkpoints(tmp_path / name) if each.step == STEPS]
    assert last.note["workers"] == 2


def test_other_algorithms_start_again_from_the_last_checkpoint(tmp_path: Path) -> None:
    calm = launched.run(*arguments(tmp_path, "calm", "ef21", workers=2, steps=24))
    assert calm.returncode == 0, calm.stderr
    metrics = tmp_path / "killed.jsonl"
    launched.hold(metrics, 10)
    process = launched.start_held(*arguments(tmp_path, "killed", "ef21", workers=2, steps=24))
    launched.wait_for_step(process, metrics, 10)
    launched.kill(launched.ranks_of(process)[0])
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "starting all 2 again" in result.stderr
    assert "resumes after step 8" in result.stdout
    assert launched.losses(tmp_path / "killed.jsonl") == launched.losses(tmp_path / "calm.jsonl")


def test_notice_ends_a_run_after_its_round_and_resuming_leaves_no_trace(tmp_path: Path) -> None:
    text = ALGORITHMS["ist"]
    calm = launched.run(*arguments(tmp_path, "calm", text, workers=2))
    assert calm.returncode == 0, calm.stderr
    launched.hold(tmp_path / "noticed.jsonl", 8)
    process = launched.start_held(*arguments(tmp_path, "noticed", text, workers=2))
    launched.wait_for_step(process, tmp_path / "noticed.jsonl", 8)
    os.kill(process.pid, signal.SIGTERM)
    result = launched.finish(process)
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert "--resume continues" in result.stdout
    reached = kept_checkpoints(tmp_path / "noticed")[-1].step
    assert reached % 4 == 0
    assert reached < STEPS
    again = launched.run(*arguments(tmp_path, "noticed", text, workers=2), "--resume")
    assert again.returncode == 0, again.stderr
    assert launched.losses(tmp_path / "noticed.jsonl") == launched.losses(tmp_path / "calm.jsonl")


@pytest.mark.skipif(not os.environ.get("THOROUGH"), reason="test_members.py has the essence of it")
def test_a_run_of_subnetworks_that_has_ended_exports_again_and_goes_on_by_another_algorithm(
    tmp_path: Path,
) -> None:
    def weights(name: str, algorithm: str, steps: int, *more: str) -> dict[str, torch.Tensor]:
        path = tmp_path / f"{name}.safetensors"
        given = arguments(tmp_path, "kept", algorithm, workers=2, steps=steps)
        result = launched.run(*given, "--export", str(path), *more)
        assert result.returncode == 0, result.stderr
        return load_file(path)

    text = "ist every=4 scale=share"
    first, again = weights("first", text, 8), weights("again", text, 8, "--resume")
    assert all(torch.equal(first[name], again[name]) for name in first)
    # The scaled model is what exact training goes on from, a step of it at a rate of 0.01 per number.
    exact = weights("exact", "ddp", 9, "--resume")
    assert max(float((first[name] - exact[name]).abs().max()) for name in first) < 0.015
