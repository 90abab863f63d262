"""A sweep on Ray makes the bytes of a sweep here, also if Ray loses a worker on the way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sweep.small import contents, small_sweep
from trainwright.errors import TrainwrightError
from trainwright.sweep.run import run_sweep

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Ray cluster of two cores on this machine, started for these tests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(sys.executable).with_name("ray")
    command = [
        str(script), "start", "--head", "--block", f"--port={port}", "--num-cpus=2",
        "--include-dashboard=false",
        "--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats",
        f"--temp-dir=/tmp/ray-{os.getpid()}",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    time.sleep(2.0)  # the node registers after the port is open
    yield f"127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(f"/tmp/ray-{os.getpid()}", ignore_errors=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here") / "out"
    run_sweep(small_sweep(), folder, workers=1)
    return folder


def test_a_sweep_on_ray_has_the_same_bytes(address: str, whole: Path, tmp_path: Path) -> None:
    run_sweep(small_sweep(), tmp_path, ray=address)
    assert contents(tmp_path) == contents(whole)


def test_a_mistake_that_only_results_show_is_told(address: str, tmp_path: Path) -> None:
    wrong = small_sweep('where = "recompute + 1 < precision * feasible"\n')
    with pytest.raises(TrainwrightError, match="compares or computes with text and numbers"):
        run_sweep(wrong, tmp_path, ray=address)


def test_a_worker_that_is_killed_changes_nothing(address: str, whole: Path, tmp_path: Path) -> None:
    killed: list[int] = []
    stop = threading.Event()

    def hunt() -> None:
        """Kill the first worker process that makes a part."""
        while not stop.is_set() and not killed:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    command = path.read_bytes()
                except OSError:
                    continue
                if command.startswith(b"ray::make_part"):
                    killed.append(int(path.parent.name))
                    os.kill(killed[0], signal.SIGKILL)
                    break
            time.sleep(0.001)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        run_sweep(small_sweep(), tmp_path, ray=address)
    finally:
        stop.set()
        hunter.join()
    assert killed  # one was at work, and is no more
    assert contents(tmp_path) == contents(whole)
