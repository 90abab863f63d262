"""The machine at hand, measured by the command, and what the file is good for."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.commands import LIMIT_S, failure, heed_interrupts, trainwright  # noqa: E402
from trainwright.cli.main import main  # noqa: E402
from trainwright.cluster.load import load_cluster  # noqa: E402
from trainwright.cost.profile import COLLECTIVES, WORKS, Kernel  # noqa: E402
from trainwright.cost.source import load_profile  # noqa: E402
from trainwright.runtime.profile import session  # noqa: E402
from trainwright.runtime.profile.session import Round, plan_rounds  # noqa: E402


def interrupted_after(count: int, path: Path, *arguments: str) -> tuple[str, str]:
    """What a profile says that is interrupted when so many of its tasks are measured, on both streams."""
    words = ["profile", "--out", str(path), "--budget", "2h", *arguments]
    with subprocess.Popen(
        [sys.executable, "-m", "trainwright.cli.main", *words],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        for line in running.stderr:
            if "/" in line and int(line.partition("/")[0]) >= count:
                break
        running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, said
    return out, said


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it but what comes last, however slow the machine is."""
    path = tmp_path_factory.mktemp("profile") / "here.toml"
    first = len(plan_rounds("cpu", (2,))[0].tasks)
    said, _ = interrupted_after(first, path, "--processes", "2")
    assert "Expected error, projected" in said
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


def test_an_interrupted_profile_keeps_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    _, said = interrupted_after(3, path, "--processes", "1")  # numbers of the software are two of them
    assert "it was interrupted; kept what was measured, missing: " in said
    profile, _ = load_profile(path)
    assert profile.kernels
    assert profile.missing


def test_a_short_time_is_kept_to_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock_s = [0.0]

    def measured_in_a_second(each: Round, *_: object) -> Iterator[tuple[str, object]]:
        for task in each.tasks[2:]:
            clock_s[0] += 1.0
            yield task.name, Kernel(work=task.work, sizes=task.sizes, seconds=1e-3, region=task.region)

    monkeypatch.setattr(session, "_results", measured_in_a_second)
    monkeypatch.setattr(session.time, "monotonic", lambda: clock_s[0])
    path = tmp_path / "short.toml"
    assert main(["profile", "--out", str(path), "--processes", "1", "--budget", "5s"]) == 0
    assert "the time was over; kept what was measured, missing: " in capsys.readouterr().err
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
