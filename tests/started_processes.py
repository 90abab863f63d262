"""Processes that tests start: none outlives a test that fails or runs out of time, nor the run of all tests.

A pytest plugin. A process is known by the environment it was started with, which its own children inherit
even if it dies first, or by its ancestors if it was forked.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MARK = "TRAINWRIGHT_TEST_RUN"
_OWNS_RUN = MARK not in os.environ  # workers of xdist inherit it
os.environ.setdefault(MARK, f"{os.getpid()}-{time.time_ns()}")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_END_S = 10.0
_begun_s: dict[str, float] = {}  # when the current phase of a test began, in seconds since the machine did


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _begun_s[item.nodeid] = time.clock_gettime(time.CLOCK_BOOTTIME)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _begun_s[item.nodeid] = time.clock_gettime(time.CLOCK_BOOTTIME)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[Any]:
    """After a phase that failed, end what it has started; what other tests share was started before."""
    report = yield
    if report.failed and (ended := end_processes(lambda: started_by(item.nodeid, call.when))):
        report.sections.append(("Processes that were ended", "\n".join(ended)))
    if call.when == "teardown":
        _begun_s.pop(item.nodeid, None)
    return report


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """After all tests, end what is left of any of them, also of a worker of xdist that has crashed."""
    if _OWNS_RUN:
        for line in end_processes(of_this_run):
            print(f"left behind by a test, and ended: {line}")


def started_by(nodeid: str, phase: str) -> set[int]:
    """Processes that a phase of a test has started, directly or not."""
    marked = {pid for pid in of_this_run() if _variable(pid, "PYTEST_CURRENT_TEST") == f"{nodeid} ({phase})"}
    begun_s = _begun_s.get(nodeid, float("inf")) - 1.0 / _TICKS_PER_S
    return marked | {pid for pid in descendants(os.getpid()) if _started_s(pid) >= begun_s}


def of_this_run() -> set[int]:
    """Processes that any test of this run has started, apart from this one and its ancestors."""
    kept = {os.getpid(), *_ancestors(os.getpid())}
    return {pid for pid in _pids() if pid not in kept and _variable(pid, MARK) == os.environ[MARK]}


def descendants(pid: int) -> set[int]:
    """Children of a process that live, their children, and so on."""
    parents = {each: _parent(each) for each in _pids()}
    found: set[int] = set()
    new = {pid}
    while new := {each for each, parent in parents.items() if parent in new} - found:
        found |= new
    return found


def end_processes(find: Callable[[], Iterable[int]]) -> list[str]:
    """Kill processes until none is found; what they were. Python's resource tracker ends by itself."""
    ended: dict[int, str] = {}
    until_s = time.monotonic() + _END_S
    while time.monotonic() < until_s:
        found = {pid: _command(pid) for pid in find()}
        living = {pid: text for pid, text in found.items() if text and "resource_tracker" not in text}
        if not living:
            break
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended |= living
        time.sleep(0.05)
    return [f"{pid} {text}" for pid, text in sorted(ended.items())]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _ancestors(pid: int) -> Iterator[int]:
    while (pid := _parent(pid)) > 0:
        yield pid


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _started_s(pid: int) -> float:
    return int(_fields(pid)[19]) / _TICKS_PER_S


def _fields(pid: int) -> list[str]:
    """What /proc says of a process from its state on; zeros if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return ["0"] * 50


def _command(pid: int) -> str:
    """The command line of a process; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()[:200]
    return ""


def _variable(pid: int, name: str) -> str | None:
    """A variable of the environment that a process was started with."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if line.startswith(f"{name}=".encode()):
                return line.partition(b"=")[2].decode(errors="replace")
    return None
