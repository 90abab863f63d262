"""A sweep on Ray makes the bytes of a sweep here, also if Ray loses a worker on the way."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.ray_clusters import RayCluster, started_cluster
from tests.unit.sweep.small import contents, small_sweep
from trainwright.errors import TrainwrightError
from trainwright.sweep.run import run_sweep

ray = pytest.importorskip("ray")

TOKEN = "a-token-of-these-tests"


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home directory that has a token in it, so that none of the machine's own matters."""
    folder = tmp_path_factory.mktemp("home")
    (folder / ".ray").mkdir()
    (folder / ".ray" / "auth_token").write_text(TOKEN)
    with pytest.MonkeyPatch.context() as patch:
        for name in [each for each in os.environ if each.startswith("RAY_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def cluster(home: Path) -> Iterator[RayCluster]:
    """A cluster that asks for the token, as `ray start` makes one where there is a token."""
    with started_cluster({"HOME": str(home)}) as started:
        yield started


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here") / "out"
    run_sweep(small_sweep(), folder, workers=1)
    return folder


def test_a_sweep_on_ray_has_the_same_bytes(cluster: RayCluster, whole: Path, tmp_path: Path) -> None:
    run_sweep(small_sweep(), tmp_path, ray=cluster.address)
    assert contents(tmp_path) == contents(whole)
    assert not [name for name in os.environ if name.startswith("RAY_AUTH")]


def test_a_cluster_without_tokens_is_used_alike(whole: Path, tmp_path: Path) -> None:
    with started_cluster({"RAY_AUTH_MODE": "disabled"}) as plain:
        run_sweep(small_sweep(), tmp_path, ray=plain.address)
    assert contents(tmp_path) == contents(whole)


def test_a_cluster_for_one_sweep_writes_no_token(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run_sweep(small_sweep(), tmp_path / "out", ray="local")
    assert contents(tmp_path / "out") == contents(whole)
    assert not (tmp_path / "home").exists()


def test_a_mistake_that_only_results_show_is_told(cluster: RayCluster, tmp_path: Path) -> None:
    wrong = small_sweep('where = "recompute + 1 < precision * feasible"\n')
    with pytest.raises(TrainwrightError, match="compares or computes with text and numbers"):
        run_sweep(wrong, tmp_path, ray=cluster.address)


def test_a_worker_that_is_killed_changes_nothing(cluster: RayCluster, whole: Path, tmp_path: Path) -> None:
    killed: list[int] = []
    stop = threading.Event()

    def hunt() -> None:
        """Kill the first worker process that makes a part."""
        while not stop.is_set() and not killed:
            for pid in cluster.working_on("make_part"):
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.001)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        run_sweep(small_sweep(), tmp_path, ray=cluster.address)
    finally:
        stop.set()
        hunter.join()
    assert killed  # one was at work, and is no more
    assert contents(tmp_path) == contents(whole)
