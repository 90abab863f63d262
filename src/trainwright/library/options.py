"""The options of a command, from values: the library asks as the command line does."""

import argparse
import importlib
from collections.abc import Mapping
from typing import NoReturn

from trainwright.errors import BadInput


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of leaving."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(self.prog, message, "cannot be read so", "see docs/library.md")


def options_of(command: str, words: list[str], values: Mapping[str, object]) -> argparse.Namespace:
    """The options of a command: positional words, and values by the names of its flags.

    None and False leave an option out, True sets a flag, a list repeats it, a mapping is KNOB=VALUE pairs.
    """
    parser = _Parser(prog=f"trainwright.{command}", add_help=False, allow_abbrev=False)
    importlib.import_module(f"trainwright.cli.{command}").add_arguments(parser)
    flags = [part for name, value in values.items() for part in _flag(name.rstrip("_"), value)]
    options = parser.parse_args([*flags, "--", *words])
    options.asked = f"trainwright {command}"
    return options


def _flag(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, Mapping):
        return [part for knob, each in value.items() for part in (flag, f"{knob}={each}")]
    if isinstance(value, list | tuple):
        return [part for each in value for part in (flag, str(each))]
    return [f"{flag}={value}"]
