"""Commands as users run them, for tests of what they print."""

import argparse
import signal
import subprocess
import sys
from typing import TypeVar

from trainwright.api.fields import Request
from trainwright.cli.command_parser import CommandParser, command_module
from trainwright.cli.request_options import read_request

RequestT = TypeVar("RequestT", bound=Request)

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


def parse_command(command: str, *words: str) -> argparse.Namespace:
    """The options of a command."""
    parser = CommandParser(prog=f"trainwright {command}", add_help=False, allow_abbrev=False)
    command_module(command).add_arguments(parser)
    options = parser.parse_options(words)
    options.asked = f"trainwright {command}"
    return options


def asked(request: type[RequestT], command: str, *words: str) -> RequestT:
    """The request that a command makes of words."""
    return read_request(parse_command(command, *words), request)
