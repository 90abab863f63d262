"""One mutated input, and what its reader makes of it."""

import contextlib
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import FuzzTarget
from trainwright.cli.main import NO_ROOM

MOST_CPU_S = 10.0
MOST_BYTES = 2 << 30  # of address space, beyond what the process has before its first case
_CODES = (0, 1, 2)
_UNVERIFIED = "has no checksum: it is not verified"  # a note, not the error


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What came of a case: `fault` is empty if it was read, or refused with a message."""

    number: int
    target: str
    code: int
    cpu_s: float
    peak_bytes: int
    fault: str


class TooSlow(BaseException):
    """A case has used up its CPU time."""


def choose(targets: Sequence[FuzzTarget], seed: int, number: int) -> tuple[FuzzTarget, bytes]:
    """The target and the input of a case: the same for the same seed and number."""
    chance = random.Random(f"{seed}/{number}")
    target = chance.choices(targets, [each.weight for each in targets])[0]
    return target, mutate(chance.choice(target.seeds), target.kind, chance)


def limit_memory() -> None:
    """Have this process run out of memory 2 GiB beyond what it has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def forbid_processes() -> None:
    """Have whatever would start a process fail, in this one."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("an input has started a process")

    for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "execv", "execve"):
        setattr(os, name, refuse)
    setattr(subprocess, "Popen", refuse)  # noqa: B010


def run_case(target: FuzzTarget, content: bytes, number: int, folder: Path) -> CaseResult:
    """Have a reader read an input; what it writes goes into a directory of its own, which is removed."""
    own = folder / f"case-{number}"
    own.mkdir()
    path = own / target.file
    path.write_bytes(content)
    code, fault, started = -1, "", time.process_time()
    before = Path.cwd()
    os.chdir(own)
    heard = io.StringIO()
    try:
        with (
            _at_most(MOST_CPU_S),
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(heard),
        ):
            code = target.call(path, folder)
    except SystemExit as error:
        code = int(error.code or 0)
    except TooSlow:
        fault = f"took more than {MOST_CPU_S:g} s of CPU time\n{traceback.format_exc()}"
    except (Exception, RecursionError):
        fault = traceback.format_exc()
    finally:
        os.chdir(before)
        shutil.rmtree(own, ignore_errors=True)
    cpu_s = time.process_time() - started
    fault = fault or _wrong(code, heard.getvalue(), target)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return CaseResult(number=number, target=target.name, code=code, cpu_s=cpu_s, peak_bytes=peak, fault=fault)


def _wrong(code: int, heard: str, target: FuzzTarget) -> str:
    """What a command that has ended has not done as it should."""
    if code not in _CODES:
        return f"exit code {code}: {heard}"
    if "Traceback" in heard or NO_ROOM in heard:
        return heard
    lines = [line for line in heard.splitlines() if _UNVERIFIED not in line]
    by_command = target.call.__name__ not in ("_sweep", "_library", "_http", "_weights", "_checkpoint")
    if by_command and code and len(lines) != 1:
        return f"exit code {code}, and not one line that says why:\n{heard}"
    return ""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise after so much CPU time; what does not return to Python then is killed a little later."""

    def stop(*_: object) -> NoReturn:
        raise TooSlow

    handler = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 5
    resource.setrlimit(resource.RLIMIT_CPU, (soft, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_CPU, limits)
