"""What an option does: what a command prints and writes with it, and without it."""

import io
import json
from argparse import Action
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.option_spies import undrawn
from trainwright.cli.command_parser import CommandParser, command_module
from trainwright.cli.main import main

PERMITS = ("--lenient",)  # what allows something, and so changes only what would be refused without it
SHOWN = ("--quiet", "--width")  # what changes only what is printed
_TOLD = ("notes", "command", "asked", "source")  # words about a question, not its answer


@dataclass(frozen=True, kw_only=True, eq=False)
class CommandMode:
    """One of the things that a command can be asked to do: words that succeed, and a value for each option.

    `needs` has, by option, others that it goes with. `spied` replaces what would take long by what tells
    its arguments.
    """

    name: str
    words: tuple[str, ...]
    samples: Mapping[str, str | None]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spied: Callable[[], AbstractContextManager[object]] = nullcontext

    def __str__(self) -> str:
        return self.name

    @property
    def actions(self) -> Mapping[str, Action]:
        """Every option of the command, by its flag."""
        return dict(_actions(self.words[:2] if self.words[0] == "study" else self.words[:1]))


class Observed(NamedTuple):
    """How a command ended, what it printed, and the files that it left."""

    code: int
    out: str
    err: str
    files: tuple[tuple[str, bytes], ...]

    def answer(self, *, shown: bool) -> object:
        """What counts: files, JSON without words about the question; and what was printed, if that is it."""
        written = {name: _told(name, content) for name, content in self.files}
        return (written, self.out) if shown else written


@cache
def _actions(command: tuple[str, ...]) -> tuple[tuple[str, Action], ...]:
    parser = CommandParser(add_help=False)
    module = command_module(command[0] if len(command) == 1 else f"study_{command[1].replace('-', '_')}")
    module.add_arguments(parser)
    return tuple((each.option_strings[-1], each) for each in parser._actions if each.option_strings)


def _told(name: str, content: bytes) -> object:
    if not name.endswith(".json"):
        return content
    tree = json.loads(content)
    return {key: value for key, value in tree.items() if key not in _TOLD} if isinstance(tree, dict) else tree


@cache
def observe(mode: CommandMode, words: tuple[str, ...]) -> Observed:
    """A command of a mode, run in a folder of its own."""
    out, err = io.StringIO(), io.StringIO()
    with TemporaryDirectory() as folder, chdir(folder), undrawn(), mode.spied():
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        left = sorted(each for each in Path(folder).rglob("*") if each.is_file())
        files = tuple((str(each.relative_to(folder)), each.read_bytes()) for each in left)
    return Observed(code, out.getvalue().replace(folder, "."), err.getvalue(), files)


def check_option(mode: CommandMode, flag: str) -> None:
    """Fail unless the option changes the answer of the command, or is an error that names it."""
    assert flag in mode.samples, f"{flag} is new: give it a value in tests/option_modes.py"
    needs = mode.needs.get(flag, ())
    if needs and observe(mode, (*mode.words, *needs)).code == 0:
        _check(mode, flag, needs, in_words=False)
        _check(mode, flag, (), in_words=True)  # alone it is refused, or what is said of the question changes
    else:
        _check(mode, flag, (), in_words=False)


def _check(mode: CommandMode, flag: str, needs: tuple[str, ...], *, in_words: bool) -> None:
    sample, json_file = mode.samples[flag], _json_file(mode, flag)
    base = (*without(mode.words, flag, mode.actions[flag]), *needs, *json_file)
    after = observe(mode, (*base, flag, *(() if sample is None else (sample,))))
    assert "Traceback" not in after.err
    if after.code:
        assert after.code == 1, after.err
        assert flag in after.err, f"refused without its name: {after.err}"
        assert mode.spied is not nullcontext or not after.out
        assert not after.files
        return
    if flag in PERMITS:
        return
    is_replaced = flag in mode.words and sample is not None
    before = observe(mode, (*mode.words, *needs, *json_file) if is_replaced else base)
    assert before.code == 0, before.err
    shown = in_words or flag in SHOWN or not json_file
    assert before.answer(shown=shown) != after.answer(shown=shown), f"{flag} changes nothing"


def _json_file(mode: CommandMode, flag: str) -> tuple[str, ...]:
    """The whole answer as a file, where a command can write it."""
    action = mode.actions.get("--json")
    is_writable = action is not None and action.nargs == "?" and flag != "--json"
    return ("--json", "answer.json") if is_writable and "--json" not in mode.words else ()


def without(words: Sequence[str], flag: str, action: Action) -> Iterator[str]:
    """Words without an option and its value."""
    taken = 0
    for word in words:
        if word == flag:
            taken = 0 if action.nargs == 0 else 1
        elif taken:
            taken -= 1
        else:
            yield word


def every_option(modes: Sequence[CommandMode]) -> list[tuple[CommandMode, str]]:
    """Every option of every mode."""
    return [(mode, flag) for mode in modes for flag in mode.actions]
