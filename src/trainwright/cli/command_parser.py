"""The parser of a command: one-line errors, and which options were given."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from trainwright.errors import BadInput, TrainwrightError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


class CommandParser(argparse.ArgumentParser):
    """A parser that raises what a user did wrong, and names the nearest option for one it does not know."""

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        """Print help; argparse's own says nothing where it cannot."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        raise TrainwrightError(message)

    def parse_options(self, words: Sequence[str]) -> argparse.Namespace:
        """The options; `given` has the names of those that were stated, also if it was their default.

        An option without a value, or stated twice where only one value counts, is an error.
        """
        usual = {action.dest: _usual(action) for action in self._actions if action.dest != "help"}
        for action in self._actions:
            action.default = argparse.SUPPRESS
        stated = _StatedOptions()
        try:
            _, unknown = self.parse_known_args(list(words), stated)
        except TrainwrightError:
            if flags := [word for word in words if self._is_unknown(word)]:
                raise self._unknown(flags[0]) from None
            raise
        if unknown:
            raise self._unknown(next((word for word in unknown if word.startswith("-")), unknown[0]))
        values = {name: value for name, value in vars(stated).items() if name != "stated_twice"}
        given = frozenset(action.dest for action in self._flags() if action.dest in values)
        self._check(values, stated.stated_twice)
        return argparse.Namespace(**{**usual, **values}, given=given)

    def _flags(self) -> list[argparse.Action]:
        return [action for action in self._actions if action.option_strings]

    def _check(self, values: dict[str, Any], stated_twice: set[str]) -> None:
        for action in self._flags():
            value = values.get(action.dest)
            flag = action.option_strings[-1]
            if value == "" or (isinstance(value, list) and "" in value):
                raise BadInput(flag, "", "is empty", "state a value, or leave it out")
            if action.dest in stated_twice and type(action).__name__ != "_AppendAction":
                raise BadInput(flag, value, "is stated twice", "state it once")

    def _is_unknown(self, word: str) -> bool:
        """Whether a word looks like an option and is none, nor the beginning of one."""
        name = word.partition("=")[0]
        known = [flag for action in self._actions for flag in action.option_strings]
        return name.startswith("--") and len(name) > 2 and " " not in name and not _begins(name, known)

    def _unknown(self, word: str) -> BadInput:
        flags = [flag for action in self._actions for flag in action.option_strings]
        if not word.startswith("-"):
            return BadInput(
                "argument", word, f"is one more than {self.prog} takes", f"see {self.prog} --help"
            )
        name = word.partition("=")[0]
        near = get_close_matches(name, flags, n=1, cutoff=0.6)
        remedy = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
        return BadInput("option", name, f"{self.prog} has no such option", remedy)


class _StatedOptions(argparse.Namespace):
    """What a user states, and what of it twice."""

    def __init__(self) -> None:
        vars(self)["stated_twice"] = set()

    def __setattr__(self, name: str, value: object) -> None:
        if name in vars(self):
            vars(self)["stated_twice"].add(name)
        super().__setattr__(name, value)


def _usual(action: argparse.Action) -> Any:
    """The value of an option that is not stated."""
    if isinstance(action.default, list):
        return list(action.default)
    is_list = not action.option_strings and action.nargs == argparse.ZERO_OR_MORE
    return [] if is_list and action.default is None else action.default


def _begins(name: str, flags: Sequence[str]) -> bool:
    return any(flag.startswith(name) for flag in flags)


def command_module(command: str) -> Any:
    """The module of a command, with its options and what it does."""
    return importlib.import_module(f"trainwright.cli.{command}")
