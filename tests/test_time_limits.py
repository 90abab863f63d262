"""A test that hangs fails, its worker runs the next one, and nothing that it started is left."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.started_processes import MARK

ROOT = Path(__file__).parents[1]
HANGING = """
import os, signal, subprocess, sys, time

SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]

def test_that_hangs(tmp_path):
    child = subprocess.Popen(SLEEP)
    # A grandchild whose parent is gone, in a session of its own.
    code = (
        "import subprocess, sys;"
        "print(subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=subprocess.DEVNULL).pid)"
    )
    orphan = subprocess.run([sys.executable, "-c", code, *SLEEP], stdout=subprocess.PIPE, text=True)
    forked = os.fork()
    if not forked:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
        os._exit(0)
    with open(os.environ["PIDS"], "w") as file:
        file.write(f"{child.pid} {orphan.stdout} {forked}")
    os.kill(os.getpid(), signal.SIGALRM)  # the time is over now, however slow the machine is
    os.waitpid(forked, 0)

def test_that_follows():
    with open(os.environ["WORKERS"], "w") as file:
        file.write(str(os.getpid()))
"""


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run of two tests, of which the first hangs; and what the run said."""
    folder = tmp_path_factory.mktemp("hung")
    (folder / "test_hanging.py").write_text(HANGING)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    environment |= {"PYTHONPATH": str(ROOT), "PIDS": f"{folder}/pids", "WORKERS": f"{folder}/worker"}
    limit = ("--timeout", "900", "--timeout-method", "signal")
    words = ["-p", "tests.started_processes", "-p", "no:cacheprovider", "--numprocesses", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *limit, str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    return folder, result.stdout + result.stderr


def test_the_hanging_test_fails_and_the_next_one_passes(hung: tuple[Path, str]) -> None:
    folder, said = hung
    assert "1 failed, 1 passed" in said
    assert "Timeout" in said
    assert "crashed" not in said
    assert (folder / "worker").exists()


def test_no_process_of_the_hanging_test_is_left(hung: tuple[Path, str]) -> None:
    folder, said = hung
    pids = (folder / "pids").read_text().split()
    assert len(pids) == 3
    assert "Processes that were ended" in said
    until_s = time.monotonic() + 60.0
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.1)  # an orphan is gone when the first process of the machine has seen its end
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists() and not is_zombie(pid)]


def is_zombie(pid: str) -> bool:
    """Whether a process has ended, and nobody has asked how."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_every_test_has_a_time_limit_that_a_signal_can_enforce(request: pytest.FixtureRequest) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert 0 < options["timeout"] < options["faulthandler_timeout"]
    for item in request.session.items:
        for mark in item.iter_markers("timeout"):
            limit_s = mark.args[0] if mark.args else mark.kwargs["timeout"]
            assert 0 < limit_s < options["faulthandler_timeout"], item.nodeid
