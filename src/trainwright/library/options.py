"""The options of a command, from values: the library asks as the command line does."""

import argparse
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from trainwright.cli.command_parser import CommandParser, command_module, parse_command
from trainwright.cli.refusal import flag_of
from trainwright.errors import BadInput

# What stands between the parts of a value, for options that take several in one word.
_JOINED = {"algorithm": ",", "batch_range": ":", "devices_range": ".."}
_OF_TERMINALS = ("quiet", "width")  # nothing is printed here


def options_of(command: str, words: Sequence[object], values: Mapping[str, object]) -> argparse.Namespace:
    """The options of a command: positional values, and options by the names of their flags.

    None and False leave an option out, True sets a flag, a list repeats an option that may be, a mapping is
    KNOB=VALUE pairs, whose values may be lists. A name that the command does not have is an error.
    """
    actions = _actions(command)
    flags: list[str] = []
    for name, value in values.items():
        key = name.rstrip("_")
        if key not in actions:
            raise _unknown(command, key, actions)
        if value is not None and value is not False:
            flags += _words(command, actions[key], key, value)
    named = [_named(command, each) for each in words]
    asked = f"trainwright.{command}"
    return parse_command(command, [*flags, "--", *named], asked=asked, prog=asked)


def _actions(command: str) -> dict[str, argparse.Action]:
    """The options of a command by the names that a keyword has for them."""
    parser = CommandParser(add_help=False)
    command_module(command).add_arguments(parser)
    listed = [(action, flag) for action in parser._actions for flag in action.option_strings]
    return {flag.lstrip("-").replace("-", "_"): action for action, flag in listed}


def _unknown(command: str, name: str, known: Mapping[str, argparse.Action]) -> BadInput:
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]}?" if near else f"see trainwright {command} --help"
    return BadInput("option", name, f"trainwright.{command} has no such option", remedy)


def _words(command: str, action: argparse.Action, name: str, value: object) -> list[str]:
    """An option and its value as words of a command line."""
    if name in _OF_TERMINALS:
        rule = f"is for a terminal, and trainwright.{command} prints nothing"
        raise BadInput(name, value, rule, "leave it out")
    flag, is_flag = flag_of(name), action.nargs == 0
    if value == "-" or (value is True and action.nargs == "?"):
        rule = "would print, and a library does not"
        raise BadInput(name, value, rule, "name a file, or use what the function returns")
    if value is True:
        if not is_flag:
            raise BadInput(name, value, "is no value of this option", "state one, or leave it out")
        return [flag]
    if is_flag:
        raise BadInput(name, value, "is neither True nor False", "write True, or leave it out")
    if isinstance(value, Mapping):
        pairs = [f"{knob}={_text(name, each, ',')}" for knob, each in value.items()]
        return _repeated(action, name, flag, pairs)
    if isinstance(value, list | tuple) and name not in _JOINED:
        return _repeated(action, name, flag, [_text(name, each) for each in value])
    return [f"{flag}={_text(name, value, _JOINED.get(name))}"]


def _repeated(action: argparse.Action, name: str, flag: str, texts: Sequence[str]) -> list[str]:
    if type(action).__name__ != "_AppendAction":
        raise BadInput(name, ", ".join(texts), "takes one value, not several", "state one")
    return [f"{flag}={text}" for text in texts]


def _text(name: str, value: object, between: str | None = None) -> str:
    """A value as a user would type it."""
    if isinstance(value, list | tuple | range) and between is not None:
        return between.join(_text(name, each) for each in value)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | os.PathLike) or _is_number(value):
        return str(value)
    rule = f"is a {type(value).__name__}, not text, a number or a path"
    raise BadInput(name, str(value), rule, "write it as on the command line")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or type(value).__module__ == "numpy"


def _named(command: str, value: object) -> str:
    """A model, cluster, plan or configuration as a command line names it."""
    if isinstance(value, str | Path):
        return str(value)
    rule = f"is a {type(value).__name__}, and trainwright.{command} takes names and files"
    raise BadInput("argument", str(value), rule, "name what it was built from, or save it to a file")
