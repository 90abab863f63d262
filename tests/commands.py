"""Commands as users run them, for tests of what they print."""

import signal
import subprocess
import sys

LIMIT_S = 500  # a busy machine is slow, not broken


def trainwright(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended."""
    command = [sys.executable, "-m", "trainwright.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def fails(*arguments: str, code: int = 1) -> str:
    """The one line that a failing command prints."""
    result = trainwright(*arguments)
    assert result.stdout == ""
    return failure(result, code)


def failure(result: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line on standard error of a command that has failed."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.startswith("trainwright: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def heed_interrupts() -> None:
    """Undo what a shell does to commands in the background: they inherit that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
