"""A sweep that is killed again and again ends as one that was left alone, and so if a worker is killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands import LIMIT_S
from tests.unit.sweep.small import TEXT, contents, small_sweep
from trainwright.sweep.dataset import load_manifest
from trainwright.sweep.load import parse_sweep
from trainwright.sweep.query import query
from trainwright.sweep.run import run_sweep

pytest.importorskip("duckdb")
KILLS = 10
LONG = TEXT.replace("factor = 2", "count = 120").replace("chunk = 3", "chunk = 10")  # 72 parts of 10 points
RUN = """
import sys
from pathlib import Path
from trainwright.sweep import load_sweep, run_sweep
run_sweep(load_sweep(Path(sys.argv[1])), Path(sys.argv[2]), workers=int(sys.argv[3]))
"""


def start(folder: Path, workers: int) -> subprocess.Popen[bytes]:
    """A sweep under way, in a process of its own."""
    command = [sys.executable, "-c", RUN, str(folder / "long.toml"), str(folder / "out"), str(workers)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def wait_for_parts(process: subprocess.Popen[bytes], out: Path, count: int) -> None:
    while len(list(out.glob("points-*"))) < count and process.poll() is None:
        time.sleep(0.002)


def children_of(process: int) -> list[int]:
    """The processes that a process has started, from /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if int(parent) == process:
            found.append(int(path.parent.name))
    return found


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_ten_kills_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    random.seed(7)
    (tmp_path / "long.toml").write_text(LONG)
    out, killed, orphans = tmp_path / "out", [], []
    for number in range(KILLS):
        process = start(tmp_path, workers=2 if number % 5 == 0 else 1)
        wait_for_parts(process, out, len(list(out.glob("points-*"))) + random.randint(1, 4))
        time.sleep(random.uniform(0.0, 0.05))
        orphans += children_of(process.pid)
        process.kill()
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == -signal.SIGKILL, errors.decode()  # it was at work when it was killed
        manifest = load_manifest(out)
        killed.append(len(manifest.parts))
        numbers = [row[0] for row in query(out, "select point from points order by point").rows]
        assert numbers == list(range(10 * len(manifest.parts)))  # what was finished is readable
    assert killed == sorted(killed)
    assert killed[0] < killed[-1] < 72
    process = start(tmp_path, workers=2)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors.decode()
    run_sweep(parse_sweep(LONG, "long"), tmp_path / "alone", workers=1)
    assert contents(out) == contents(tmp_path / "alone")
    numbers = [row[0] for row in query(out, "select point from points order by point").rows]
    assert numbers == list(range(720))
    until = time.monotonic() + LIMIT_S
    while any(map(is_alive, orphans)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(is_alive, orphans))  # workers do not outlive the sweep


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    ended: list[int] = []

    def kill_one(done: int, planned: int, name: str) -> None:
        if done == 6:
            mine = [each for each in children_of(os.getpid()) if b"sweep.worker" in command_of(each)]
            ended.append(mine[0])
            os.kill(mine[0], signal.SIGKILL)

    run_sweep(small_sweep(), tmp_path / "killed", workers=2, progress=kill_one)
    run_sweep(small_sweep(), tmp_path / "alone", workers=1)
    assert ended
    assert contents(tmp_path / "killed") == contents(tmp_path / "alone")


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
