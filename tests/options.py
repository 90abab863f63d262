"""What an option does: what a command prints and writes with it, and without it."""

import io
import json
from argparse import Action
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.option_spies import SPIED, shared_results, undrawn
from trainwright.cli.command_parser import CommandParser, command_module
from trainwright.cli.main import main
from trainwright.cli.study import study_parser

PERMITS = ("--lenient",)  # options that change only what is an error without them
SHOWN = ("--quiet", "--width")  # options that change only what is printed
_FOLDER = TemporaryDirectory(prefix="options-")  # in which all commands run, one after another
_DESCRIPTIONS = ("notes", "command", "asked", "source")  # keys that describe a question, not its answer


@dataclass(frozen=True, kw_only=True, eq=False)
class CommandMode:
    """One of the tasks of a command: words that succeed, and a sample value for each option.

    `needs` has, by option, other options that it requires. `spied` replaces slow functions by spies that
    print their arguments.
    """

    name: str
    words: tuple[str, ...]
    samples: Mapping[str, str | None]
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    spied: Callable[[], AbstractContextManager[object]] = nullcontext

    def __str__(self) -> str:
        return self.name

    @property
    def command(self) -> tuple[str, ...]:
        """The command, with the name of a study."""
        return self.words[:2] if self.words[0] == "study" else self.words[:1]

    @property
    def actions(self) -> Mapping[str, Action]:
        """Every option of the command, by its flag."""
        return dict(_actions(self.command))

    @property
    def is_spied(self) -> bool:
        """Whether what is printed shows the arguments of slow functions."""
        return self.spied is not nullcontext


class Observed(NamedTuple):
    """How a command ended, what it printed, and the files that it left."""

    code: int
    out: str
    err: str
    files: tuple[tuple[str, bytes], ...]

    def answer(self, *, shown: bool) -> object:
        """The files, JSON without descriptions of the question; and what was printed, if `shown`."""
        written = {name: _undescribed(name, content) for name, content in self.files}
        return (written, self.out) if shown else written


@cache
def _actions(command: tuple[str, ...]) -> tuple[tuple[str, Action], ...]:
    if len(command) == 2:
        parser = study_parser(command[1])
    else:
        parser = CommandParser(add_help=False)
        command_module(command[0]).add_arguments(parser)
    listed = [each for each in parser._actions if each.option_strings and each.dest != "help"]
    return tuple((each.option_strings[-1], each) for each in listed)


def _undescribed(name: str, content: bytes) -> object:
    if not name.endswith(".json"):
        return content
    tree = json.loads(content)
    if not isinstance(tree, dict):
        return tree
    return {key: value for key, value in tree.items() if key not in _DESCRIPTIONS}


@cache
def observe(mode: CommandMode, words: tuple[str, ...]) -> Observed:
    """A command of a mode, run in an empty directory."""
    out, err, folder = io.StringIO(), io.StringIO(), Path(_FOLDER.name)
    with chdir(folder), undrawn(), shared_results(), mode.spied():
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        left = sorted(each for each in folder.rglob("*") if each.is_file())
        files = tuple((str(each.relative_to(folder)), each.read_bytes()) for each in left)
    for each in folder.iterdir():
        rmtree(each) if each.is_dir() else each.unlink()
    return Observed(code, out.getvalue().replace(str(folder), "."), err.getvalue(), files)


def check_option(mode: CommandMode, flag: str) -> None:
    """Fail unless the option changes the answer of the command, or is an error that names it."""
    assert flag in mode.samples, f"{flag} is new: give it a value in tests/option_modes.py"
    needs = needed(mode, flag)
    _check(mode, flag, needs, in_words=False)
    if needs:
        _check(mode, flag, (), in_words=True)  # alone it is refused, or what is said of the question changes


def is_honoured(mode: CommandMode, flag: str) -> bool:
    """Whether the command succeeds with the option."""
    return _with_option(mode, flag, needed(mode, flag)).code == 0


def needed(mode: CommandMode, flag: str) -> tuple[str, ...]:
    """The other options that an option requires, if the mode accepts those."""
    needs = mode.needs.get(flag, ())
    return needs if needs and observe(mode, (*mode.words, *needs)).code == 0 else ()


def _check(mode: CommandMode, flag: str, needs: tuple[str, ...], *, in_words: bool) -> None:
    after = _with_option(mode, flag, needs)
    assert "Traceback" not in after.err
    if after.code:
        assert after.code == 1, after.err
        assert flag in after.err, f"refused without its name: {after.err}"
        assert mode.is_spied or not after.out
        assert not [name for name, _ in after.files if name != SPIED]
        return
    is_replaced = flag in mode.words and mode.samples[flag] is not None
    json_file = _json_file(mode, flag)
    base = mode.words if is_replaced else tuple(without(mode.words, flag, mode.actions[flag]))
    before = observe(mode, (*base, *needs, *json_file))
    if flag in PERMITS:
        assert before.code == (flag in mode.words), before.err
        assert flag in before.err or not before.code
        return
    assert before.code == 0, before.err
    shown = in_words or flag in SHOWN or not json_file
    assert before.answer(shown=shown) != after.answer(shown=shown), f"{flag} changes nothing"


def _with_option(mode: CommandMode, flag: str, needs: tuple[str, ...]) -> Observed:
    sample = mode.samples[flag]
    base = without(mode.words, flag, mode.actions[flag])
    value = () if sample is None else (sample,)
    return observe(mode, (*base, *needs, *_json_file(mode, flag), flag, *value))


def _json_file(mode: CommandMode, flag: str) -> tuple[str, ...]:
    """The option that writes the whole answer as a file, where a command has it."""
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
