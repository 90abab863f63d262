import os
import random
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

from tests.runtime import launching as launched
from trainwright.runtime.shelf import kept_checkpoints

pytestmark = pytest.mark.timeout(1200)  # several runs follow each other
STEPS = 60
KILLS = 10 if os.environ.get("THOROUGH") else 4


def arguments(directory: Path, name: str, plan: str = "dp2", steps: int = STEPS) -> list[str]:
    """A run of a small model with a checkpoint every third step."""
    return [
        launched.build_model(directory), plan, "--steps", str(steps), "--rate", "1e-2", "--every", "3",
        "--checkpoint", str(directory / name), "--metrics", str(directory / f"{name}.jsonl"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float]]:
    """The losses of a run that nothing happens to."""
    directory = tmp_path_factory.mktemp("undisturbed")
    result = launched.run(*arguments(directory, "calm"))
    assert result.returncode == 0, result.stderr
    found = launched.losses(directory / "calm.jsonl")
    assert found[-1][1] < 0.7 * found[0][1]
    return found


def test_killed_processes_leave_no_trace_in_the_losses(
    tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    chosen = random.Random(1)
    metrics = tmp_path / "killed.jsonl"
    steps = sorted(chosen.sample(range(1, STEPS - 2), KILLS))
    launched.hold(metrics, steps[0])
    process = launched.start_held(*arguments(tmp_path, "killed"), "--restarts", str(KILLS))
    for step, following in zip(steps, [*steps[1:], STEPS + 1], strict=True):
        launched.wait_for_step(process, metrics, step)
        before = launched.ranks_of(process)
        victim = chosen.choice(before)
        launched.kill(victim)
        launched.hold(metrics, following)
        assert launched.wait_until_gone(before)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("(SIGKILL) was killed; going on with 2") == KILLS
    assert launched.losses(metrics) == undisturbed


def test_processes_save_and_end_when_their_launcher_is_killed(
    tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    metrics = tmp_path / "orphans.jsonl"
    launched.hold(metrics, 10)
    process = launched.start_held(*arguments(tmp_path, "orphans"))
    launched.wait_for_step(process, metrics, 10)
    ranks = launched.ranks_of(process)
    launched.kill(process.pid)
    launched.release(metrics)
    assert launched.wait_until_gone(ranks)
    reached = launched.steps_taken(metrics)
    assert kept_checkpoints(tmp_path / "orphans")[-1].step == reached < STEPS
    result = launched.run(*arguments(tmp_path, "orphans"), "--resume")
    assert result.returncode == 0, result.stderr
    assert launched.losses(metrics) == undisturbed


def test_torchrun_starts_killed_processes_again(tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    metrics = tmp_path / "again.jsonl"
    command = ("--max-restarts=1", *launched.HELD, *arguments(tmp_path, "again"))
    launched.hold(metrics, 10)
    process = launched.start_torchrun(2, *command)
    launched.wait_for_step(process, metrics, 10)
    launched.kill(max(launched.children(process.pid)))
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("resumes after step") == 1
    assert launched.losses(metrics) == undisturbed


def test_notice_is_time_for_a_checkpoint(tmp_path: Path, undisturbed: list[tuple[int, float]]) -> None:
    metrics = tmp_path / "notice.jsonl"
    launched.hold(metrics, 10)
    process = launched.start_held(*arguments(tmp_path, "notice"))
    launched.wait_for_step(process, metrics, 10)
    launched.kill(process.pid, signal.SIGTERM)
    result = launched.finish(process)
    assert result.returncode == 128 + signal.SIGTERM
    assert "--resume continues" in result.stdout
    assert "Traceback" not in result.stderr
    reached = launched.steps_taken(metrics)
    assert kept_checkpoints(tmp_path / "notice")[-1].step == reached < STEPS
    launched.run(*arguments(tmp_path, "notice"), "--resume")
    assert launched.losses(metrics) == undisturbed


def test_a_checkpoint_that_is_interrupted_is_never_loaded(
    tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    shelf, metrics = tmp_path / "torn", tmp_path / "torn.jsonl"
    launched.hold(metrics, 5)  # after the first checkpoint, before the second
    process = launched.start_held(*arguments(tmp_path, "torn"), "--restarts", "0")
    launched.wait_for_step(process, metrics, 5)
    ranks = launched.ranks_of(process)
    launched.hold(shelf)
    launched.release(metrics)
    launched.wait_until(process, lambda: bool(list(shelf.glob(".writing-*"))))
    for rank in ranks:
        launched.kill(rank)
    assert launched.wait_until_gone(ranks)
    assert launched.finish(process).returncode == 75
    launched.release(shelf)
    (torn,) = shelf.glob(".writing-*")
    whole = [each.step for each in kept_checkpoints(shelf)]
    assert whole == [3]
    assert torn.name.split("-")[1] == f"{6:08d}"  # the next one, which has no name yet
    result = launched.run(*arguments(tmp_path, "torn"), "--resume")
    assert f"resumes after step {whole[-1]}" in result.stdout
    assert not torn.exists()
    assert launched.losses(metrics) == undisturbed


def test_a_full_disk_costs_one_checkpoint_and_none_before_it(tmp_path: Path) -> None:
    first = launched.run(*arguments(tmp_path, "full", steps=3))
    assert first.returncode == 0, first.stderr
    limited = ["prlimit", "--fsize=4096"]
    result = launched.run(*arguments(tmp_path, "full", steps=6), "--resume", before=limited)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "the disk is full" in result.stderr
    assert "the one of step 3 is intact" in result.stderr
    assert [each.step for each in kept_checkpoints(tmp_path / "full")] == [3]


def test_fewer_processes_go_on_under_another_plan(
    tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    metrics = tmp_path / "fewer.jsonl"
    launched.hold(metrics, 8)
    process = launched.start_held(*arguments(tmp_path, "fewer", plan="dp4"), "--elastic")
    launched.wait_for_step(process, metrics, 8)
    launched.kill(launched.ranks_of(process)[2])
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "going on with 2 processes" in result.stderr  # no strategy has 3 for a batch of 8
    found = launched.losses(metrics)
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in undisturbed], abs=1e-4)


def test_a_machine_that_torchrun_loses_leaves_the_others_to_go_on(
    tmp_path: Path, undisturbed: list[tuple[int, float]]
) -> None:
    metrics = tmp_path / "machines.jsonl"
    command = (*launched.HELD, *arguments(tmp_path, "machines"), "--elastic")
    launched.hold(metrics, 8)
    first, second = launched.start_nodes(2, *command)
    launched.wait_for_step(first, metrics, 8)
    (lost,) = launched.children(second.pid)
    for pid in (second.pid, lost):
        launched.kill(pid)
    launched.release(metrics)
    launched.finish(second)
    result = launched.finish(first)
    assert result.returncode == 0, result.stderr
    assert "resumes after step" in result.stdout
    (note,) = [each.note for each in kept_checkpoints(tmp_path / "machines") if each.step == STEPS]
    assert "\ndevices 1\n" in note["plan"]
    found = launched.losses(metrics)
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in undisturbed], abs=1e-4)
