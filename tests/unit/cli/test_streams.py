"""Standard output of any encoding, and on devices that take nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cli.streams import nearest

PLAN = ("plan", "gpt2", "h100:8", "--batch", "64")


def run(
    *arguments: str, out: int = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "trainwright.cli.main", *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONUTF8", "LC_ALL", "LANG")}
    return subprocess.run(
        command, stdout=out, stderr=subprocess.PIPE, env=kept | environment, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
)
def test_an_encoding_without_some_characters_gets_their_nearest_ones(environment: dict[str, str]) -> None:
    result = run(*PLAN, **environment)
    assert (result.returncode, result.stderr) == (0, b"")
    text = result.stdout.decode("cp1252")
    assert "CO2e" in text
    assert "\\u" not in text


def test_json_says_the_same_in_every_encoding() -> None:
    options = ("catalog", "models", "--json")
    plain, ascii_only = run(*options, PYTHONIOENCODING="utf-8"), run(*options, PYTHONIOENCODING="ascii")
    assert json.loads(plain.stdout) == json.loads(ascii_only.stdout)


def test_a_handler_that_the_user_has_chosen_stays() -> None:
    result = run(*PLAN, PYTHONIOENCODING="ascii:backslashreplace")
    assert result.returncode == 0
    result = run(*PLAN, PYTHONIOENCODING="ascii:xmlcharrefreplace")
    assert b"CO&#8322;e" in result.stdout


@pytest.mark.parametrize(
    ("character", "expected"), [("₂", "2"), ("─", "-"), ("é", "e"), ("\udcff", "?"), ("汉", "?")]
)
def test_the_nearest_character_is_one_of_ascii(character: str, expected: str) -> None:
    assert nearest(character) == expected


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [PLAN, ("--help",), ("catalog", "models", "--json")])
def test_a_full_device_is_an_error_of_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        result = run(*arguments, out=full.fileno())
    assert result.returncode == 1
    assert result.stderr.decode().splitlines() == [
        "trainwright: standard output: cannot be written (No space left on device); "
        "redirect it to where there is room"
    ]


def test_a_standard_output_that_is_closed_is_an_error_of_one_line() -> None:
    command = ["sh", "-c", 'exec "$0" -m trainwright.cli.main catalog models >&-', sys.executable]
    result = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert result.returncode == 1
    assert result.stderr.startswith(b"trainwright: standard output: is closed")


def test_a_reader_that_leaves_is_no_error() -> None:
    command = ["sh", "-c", '"$0" -m trainwright.cli.main catalog models --json | head -n 1', sys.executable]
    result = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert result.stderr == b""
