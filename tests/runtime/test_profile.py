"""The machine at hand, measured by the command, and what the file is good for."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.commands import failure, trainwright  # noqa: E402
from trainwright.cluster.load import load_cluster  # noqa: E402
from trainwright.cost.profile import COLLECTIVES, WORKS  # noqa: E402
from trainwright.cost.source import load_profile  # noqa: E402


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it but what comes last, however slow the machine is."""
    path = tmp_path_factory.mktemp("profile") / "here.toml"
    result = trainwright("profile", "--out", str(path), "--budget", "30s", "--processes", "2")
    assert result.returncode == 0, result.stderr
    assert "Expected error, projected" in result.stdout
    return path


def test_every_kind_of_work_and_of_collective_is_measured(measured: Path) -> None:
    profile, cluster = load_profile(measured)
    assert {each.work for each in profile.kernels if each.region} == set(WORKS)
    assert {each.kind for each in profile.collectives} == set(COLLECTIVES)
    assert cluster.count == profile.processes == 2
    assert profile.operator_s > 0.0
    assert all(each.seconds > 0.0 for each in profile.kernels)


def test_a_profile_is_taken_wherever_a_cluster_is(measured: Path) -> None:
    arguments = ("examples/tiny.toml", str(measured), "--batch", "8", "--seq", "64")
    planned = trainwright("plan", *arguments)
    assert planned.returncode == 0, planned.stderr
    assert "between measured shapes" in planned.stdout
    projected = trainwright("simulate", *arguments, "dp2", "--cost", f"projected:{measured}")
    assert projected.returncode == 0, projected.stderr
    assert "in proportion to FLOPs" in projected.stdout
    elsewhere = trainwright("plan", "gpt2", "h100:8", "--cost", f"projected:{measured}")
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert "carried over to h100" in elsewhere.stdout


def start(path: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "trainwright.cli.main", "profile", "--out", str(path), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_an_interrupted_profile_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    running = start(path, "--processes", "1", "--budget", "2min")
    assert running.stderr is not None
    running.stderr.readline()  # the first measurement is told
    time.sleep(4.0)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 0, said
    assert "it was interrupted; kept what was measured, missing: " in said
    profile, _ = load_profile(path)
    assert profile.kernels
    assert profile.missing


def test_a_short_time_is_kept_to_and_told(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    result = trainwright("profile", "--out", str(path), "--processes", "1", "--budget", "12s")
    assert result.returncode == 0, result.stderr
    assert "the time was over; kept what was measured, missing: " in result.stderr
    assert load_cluster(str(path)).count == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "1ms"), "was over before a kernel was measured"),
        (("--budget", "soon"), "--budget"),
        (("--out", "nowhere/here.toml"), "a directory that exists"),
        (("--processes", "0"), "--processes"),
    ],
)
def test_bad_input_is_told(arguments: tuple[str, ...], message: str) -> None:
    assert message in failure(trainwright("profile", *arguments), 1)
