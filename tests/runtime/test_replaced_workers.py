"""Workers of `trainwright run --algorithm` that are gone for a while: killed, replaced, stalled."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.runtime import launching as launched
from trainwright.runtime.shelf import kept_checkpoints

pytestmark = pytest.mark.timeout(1200)  # several runs follow each other
STEPS = 64
ALGORITHMS = {
    "ist": "ist every=4 coverage=0.5",
    "diloco": "diloco every=4",
    "local-sgd": "local-sgd every=4",
    "streaming": "streaming-diloco every=4",
}
SOON = ("--timeout", "8", "--restarts", "20")  # on a busy machine, others may seem to stall
TRIED = ALGORITHMS if os.environ.get("THOROUGH") else ("ist", "diloco")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def arguments(directory: Path, name: str, algorithm: str, workers: int = 4, steps: int = STEPS) -> list[str]:
    return launched.apart(directory, name, algorithm, workers, steps)


@pytest.mark.parametrize("name", TRIED)
def test_a_worker_that_is_killed_is_replaced_at_a_meeting(name: str, tmp_path: Path) -> None:
    calm = launched.run(*arguments(tmp_path, "calm", ALGORITHMS[name]))
    assert calm.returncode == 0, calm.stderr
    metrics = tmp_path / "killed.jsonl"
    launched.hold(metrics, 8)
    process = launched.start_held(*arguments(tmp_path, "killed", ALGORITHMS[name]))
    launched.wait_for_step(process, metrics, 8)
    victim = launched.ranks_of(process)[1]
    launched.kill(victim)
    launched.hold(metrics, 20)  # with those that are left, until another worker is up
    said = launched.wait_for_words(process, "worker 1 is back; 4 of 4")
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, said + result.stderr
    assert "(SIGKILL); going on with 3 of 4 workers" in said
    assert "4 workers go on after step" in result.stdout
    assert launched.worker_counts(metrics) == [4, 3, 4]
    found, wanted = launched.losses(metrics), launched.losses(tmp_path / "calm.jsonl")
    assert [step for step, _ in found] == list(range(1, STEPS + 1))  # none twice, none left out
    learned = wanted[0][1] - _last(wanted)
    assert _last(found) == pytest.approx(_last(wanted), abs=0.1 * learned)
    _check_last_checkpoint(tmp_path / "killed")


def _last(losses: list[tuple[int, float]]) -> float:
    """The mean loss of the last two rounds."""
    return sum(loss for _, loss in losses[-8:]) / 8


def _check_last_checkpoint(shelf: Path) -> None:
    """All four workers, the new one too, have the same outer model, to the bit."""
    (last,) = [each for each in kept_checkpoints(shelf) if each.step == STEPS]
    assert last.note["workers"] == 4
    kept = [torch.load(last.path / f"worker-{rank}.pt") for rank in range(4)]
    for shared in {"outer", "speed"} & set(kept[0]):
        assert all(torch.equal(each[shared], kept[0][shared]) for each in kept)
    assert all(each.get("shared", {}).keys() == kept[0].get("shared", {}).keys() for each in kept)


def test_notice_ends_a_run_while_a_worker_is_being_replaced(tmp_path: Path) -> None:
    metrics = tmp_path / "noticed.jsonl"
    launched.hold(metrics, 8)
    process = launched.start_held(*arguments(tmp_path, "noticed", ALGORITHMS["diloco"], workers=3, steps=200))
    launched.wait_for_step(process, metrics, 8)
    launched.kill(launched.ranks_of(process)[1])
    launched.hold(metrics, 24)
    said = launched.wait_for_words(process, "going on with 2 of 3")
    ranks = launched.ranks_of(process)
    launched.kill(process.pid, signal.SIGTERM)
    result = launched.finish(process)
    assert result.returncode == 128 + signal.SIGTERM, said + result.stderr
    assert "--resume continues" in result.stdout
    assert launched.wait_until_gone(ranks)
    reached = kept_checkpoints(tmp_path / "noticed")[-1].step
    assert reached == launched.steps_taken(metrics) < 200


@pytest.mark.skipif(not os.environ.get("THOROUGH"), reason="takes a minute")
@pytest.mark.parametrize("name", ALGORITHMS)
def test_workers_that_are_killed_at_any_time_are_replaced(name: str, tmp_path: Path) -> None:
    chosen, metrics = random.Random(name), tmp_path / "killed.jsonl"
    process = launched.start(*arguments(tmp_path, "killed", ALGORITHMS[name]), "--restarts", "99")
    launched.wait_for_step(process, metrics, 4)
    for _ in range(8):
        time.sleep(chosen.random())
        ranks = launched.ranks_of(process)
        if ranks:
            launched.kill(chosen.choice(ranks))
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert [step for step, _ in launched.losses(metrics)] == list(range(1, STEPS + 1))


def test_a_worker_that_stalls_is_replaced(tmp_path: Path) -> None:
    metrics = tmp_path / "stalled.jsonl"
    given = arguments(tmp_path, "stalled", ALGORITHMS["ist"], workers=3)
    launched.hold(metrics, 8)
    process = launched.start_held(*given, *SOON)
    launched.wait_for_step(process, metrics, 8)
    launched.kill(launched.ranks_of(process)[1], signal.SIGSTOP)
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "did not answer the others for 8 s" in result.stderr
    assert "worker 1 was killed (SIGKILL); going on with 2 of 3 workers" in result.stderr
    losses = launched.losses(metrics)
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    assert losses[-1][1] < 0.65 * losses[0][1]


def test_all_start_again_where_one_stalls_that_others_cannot_do_without(tmp_path: Path) -> None:
    calm = launched.run(*arguments(tmp_path, "calm", "ef21", workers=2, steps=24))
    assert calm.returncode == 0, calm.stderr
    given = arguments(tmp_path, "stalled", "ef21", workers=2, steps=24)
    metrics = tmp_path / "stalled.jsonl"
    launched.hold(metrics, 8)
    process = launched.start_held(*given, *SOON)
    launched.wait_for_step(process, metrics, 8)
    launched.kill(launched.ranks_of(process)[0], signal.SIGSTOP)
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "waited for another in vain; starting all 2 again" in result.stderr
    assert launched.losses(tmp_path / "stalled.jsonl") == launched.losses(tmp_path / "calm.jsonl")
