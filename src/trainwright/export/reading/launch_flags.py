"""The arguments that a command line, a file of arguments or a launch script gives to a program."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwright.errors import BadInput
from trainwright.export.reading.shell_run import CalledCommand, ScriptCalls, run_script
from trainwright.export.reading.shell_values import ShellValue, Unsettled, split_words

_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MORE_ARGUMENTS = re.compile(r"(?i)arg|opt|flag|extra|^[@*]$")
_OF_THE_MACHINE = re.compile(
    r"(?i)port|addr|host|dir|path|name|rank|file|log|save|load|data|tag|run|root|home"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags by name without dashes in front, with `-` for `_`; each with the words after it.

    `launcher` are those before the program (of torchrun, srun, deepspeed); `script` is the program.
    `undecided` are flags that are there or not by a condition that the text does not settle.
    `environment` has the variables that the text sets.
    """

    values: Mapping[str, tuple[ShellValue, ...]]
    source: str
    script: str = ""
    launcher: Mapping[str, tuple[ShellValue, ...]] = field(default_factory=dict)
    undecided: Mapping[str, Unsettled] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that the text sets
    notes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a flag is there."""
        return name in self.values

    def whole(self, name: str, default: int | None = None) -> int:
        """A flag's whole number."""
        if name not in self.values:
            if default is None:
                raise BadInput(f"{self.source}: --{name}", "", "is missing", f"add --{name}")
            return default
        text = self.word(name, "")
        if not re.fullmatch(r"\d{1,15}", text):
            raise BadInput(f"{self.source}: --{name}", text, "must be a whole number", "correct it")
        return int(text)

    def word(self, name: str, default: str) -> str:
        """A flag's first word."""
        if name not in self.values:
            return default
        words = self.values[name]
        if not words:
            raise BadInput(f"{self.source}: --{name}", "", "has no value after it", "write the value")
        if words[0].text is None:
            raise self.unsettled(name, words[0].unsettled, words[0].shown)
        return words[0].text

    def unsettled(self, name: str, part: Unsettled | None, value: str = "") -> BadInput:
        """What to say of a flag whose value or presence the text does not settle."""
        reason = part.reason if part else "is not known"
        names = part.names if part else ()
        remedy = f"state --set {names[0]}=VALUE" if names else "write the value"
        reason = reason if reason.startswith("depends") else f"is not known: {reason}"
        return BadInput(f"{self.source}: --{name}", value, reason, remedy)


def parse_flags(
    text: str,
    source: str,
    is_wanted: Callable[[str], bool],
    *,
    stated: Mapping[str, str] | None = None,
    harmless: Callable[[str], bool] = lambda name: False,
) -> Flags:
    """The flags of a text: those of the command that is called with some that are wanted.

    Where several commands are, they must agree in all flags that are not harmless.
    """
    calls = run_script(text, source, stated)
    unused = sorted({*(stated or {})} - calls.variables.used)
    launches = [_flags_of(call.words, source) for call in _launches(calls, is_wanted)]
    notes: tuple[str, ...] = ()
    if not launches:
        found, names = _assigned_words(calls, is_wanted)
        if not found:
            rule = "calls no program with arguments that are known"
            raise BadInput(
                source, "script", rule, "name a file of its arguments, or the script that has them"
            )
        launches = [_flags_of(found, source)]
        notes = (f"No command of the text uses its arguments: those of {', '.join(names)} are taken.",)
    if unused:
        rule = "is no variable that the text leaves open or uses"
        raise BadInput("--set", unused[0], rule, "state a variable of the script")
    lines = [call.line for call in _launches(calls, is_wanted)]
    first = launches[0]
    for line, other in zip(lines[1:], launches[1:], strict=True):
        _check_same(first, other, (lines[0], line), harmless)
    return Flags(
        values=first.values, source=source, script=first.script, launcher=first.launcher,
        undecided={name: part for name, part in first.undecided.items() if not harmless(name)},
        documents=calls.documents, environment=_environment(calls, is_wanted),
        notes=(*notes, *first.notes, *_granted(calls)),
    )  # fmt: skip


def _environment(calls: ScriptCalls, is_wanted: Callable[[str], bool]) -> dict[str, str]:
    """Variables whose value the text settles; those of the launch alone, by a prefix or `env`, go before."""
    found = {
        name: text
        for name, each in calls.variables.values.items()
        if isinstance(each, ShellValue) and (text := each.text) is not None
    }
    for call in _launches(calls, is_wanted):
        found |= dict(call.environment)
        for word in call.words[1:]:
            if call.words[0].text != "env" or not re.match(r"[A-Za-z_]\w*=", word.text or ""):
                break
            name, _, value = (word.text or "").partition("=")
            found[name] = value
    return found


def _launches(calls: ScriptCalls, is_wanted: Callable[[str], bool]) -> list[CalledCommand]:
    """The commands with arguments that are wanted."""
    return [
        call
        for call in _with_further_lines(calls.commands)
        if (call.words[0].text or "") not in ("echo", "printf", "cat")
        and any(is_wanted(name) for name in _all_names(call.words))
    ]


def _with_further_lines(commands: Sequence[CalledCommand]) -> list[CalledCommand]:
    """The commands, with lines that begin with an argument as what they are: more of the command before."""
    found: list[CalledCommand] = []
    for each in commands:
        if found and each.words[0].shown.startswith("--"):
            last = found[-1]
            found[-1] = replace(last, words=last.words + each.words)
        else:
            found.append(each)
    return found


def _all_names(words: Iterable[ShellValue]) -> Iterator[str]:
    for word in words:
        text = word.text if word.text is not None else str(word.pieces[0])
        if text.startswith("--"):
            yield _name(text)
        for piece in word.pieces:
            if isinstance(piece, Unsettled):
                for option in piece.options:
                    yield from _all_names(option)


def _name(word: str) -> str:
    return word[2:].partition("=")[0].replace("_", "-")


def _assigned_words(
    calls: ScriptCalls, is_wanted: Callable[[str], bool]
) -> tuple[list[ShellValue], list[str]]:
    """The words of variables that hold arguments, for texts that only set them."""
    found: list[ShellValue] = []
    names: list[str] = []
    for name, value in calls.variables.values.items():
        words = value if isinstance(value, list) else [value]
        words = [each for word in words for each in split_words(word)]
        if any(_all_names(words)) and words[0].shown.startswith("--"):
            found += words
            names.append(name)
    return (found, names) if any(is_wanted(each) for each in _all_names(found)) else ([], [])


def _flags_of(words: Sequence[ShellValue], source: str) -> Flags:
    """The flags of one command."""
    at = _program_at(words)
    script = words[at].shown if at is not None else ""
    before, after = (words[:at], words[at + 1 :]) if at is not None else ((), words)
    launcher = _Collected()
    launcher.read(before)
    program = _Collected()
    program.read(after)
    notes = []
    if not script and words[0].text and not words[0].shown.startswith("--"):
        notes.append("Which program is launched is not in the text: GPT pretraining is assumed.")
    if program.empty:
        shown = ", ".join(f"${name}" for name in dict.fromkeys(program.empty))
        notes.append(f"Not set in the text, and taken to be empty: {shown} (see --set).")
    return Flags(
        values={key: tuple(found) for key, found in program.values.items()}, source=source, script=script,
        launcher={key: tuple(found) for key, found in launcher.values.items()},
        undecided=program.undecided, notes=tuple(notes),
    )  # fmt: skip


def _program_at(words: Sequence[ShellValue]) -> int | None:
    """Where the program stands that takes the arguments: a Python file, or a module after `-m`."""
    for index, word in enumerate(words):
        if word.shown.endswith(".py") and not word.shown.startswith("--"):
            return index
        if word.text == "-m" and index + 1 < len(words) and words[index + 1].text not in _LAUNCHERS:
            return index + 1
    return None


_LAUNCHERS = ("torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch")


class _Collected:
    """Flags as they are collected, word by word."""

    def __init__(self) -> None:
        self.values: dict[str, list[ShellValue]] = {}
        self.undecided: dict[str, Unsettled] = {}
        self.empty: list[str] = []
        self.name = ""

    def read(self, words: Iterable[ShellValue]) -> None:
        for word in words:
            self._read_word(word)

    def _read_word(self, word: ShellValue) -> None:
        start = word.pieces[0] if word.pieces and isinstance(word.pieces[0], str) else ""
        if start.startswith("--") and len(split_words(word)) > 1 and "=" not in start.split()[0]:
            self.read(split_words(word))  # quoted with its value, which the program takes apart
        elif start.startswith("--") and len(start) > 2:
            self.name, equals, value = start[2:].partition("=")
            self.name = self.name.replace("_", "-")
            rest = ShellValue(pieces=(*([value] if value else []), *word.pieces[1:]))
            self.values[self.name] = [rest] if equals else []
            self.undecided.pop(self.name, None)
        elif word.unsettled and self._is_more(word):
            self._read_open(word)
        elif self.name and (word.text is None or _belongs(word.text)):
            self.values[self.name].append(word)
        else:
            self.name = ""

    def _is_more(self, word: ShellValue) -> bool:
        """Whether an unsettled word holds further arguments, and is not the value of the last flag."""
        parts = [each for each in word.pieces if isinstance(each, Unsettled)]
        options = [option for part in parts for option in part.options]
        if any([*_all_names(option)] for option in options):
            return True
        if len(word.pieces) > 1:
            return False
        if options:
            return any(len(option) != 1 for option in options)
        names = [name for part in parts for name in part.names]
        return not self.name or any(_MORE_ARGUMENTS.search(name) for name in names)

    def _read_open(self, word: ShellValue) -> None:
        for part in word.pieces:
            if not isinstance(part, Unsettled):
                continue
            if not part.options:
                self.empty += [name for name in part.names if name not in ("@", "*")]
            for option in part.options:
                inner = _Collected()
                inner.read(option)
                self.undecided |= dict.fromkeys(inner.values, part) | inner.undecided
        self.name = ""


def _belongs(word: str) -> bool:
    """Whether a word can be a flag's value: no option with one dash."""
    return bool(_NUMBER.fullmatch(word)) or not word.startswith("-")


def _check_same(first: Flags, other: Flags, lines: tuple[int, int], harmless: Callable[[str], bool]) -> None:
    """Raise if two launches of a script differ in what matters."""
    names = {*first.values, *other.values}
    differ = sorted(
        name for name in names if first.values.get(name) != other.values.get(name) and not harmless(name)
    )
    if differ or first.script.rpartition("/")[2] != other.script.rpartition("/")[2]:
        what = f"differ in --{differ[0]}" if differ else f"run {first.script} and {other.script}"
        rule = f"the launches in lines {lines[0]} and {lines[1]} {what}"
        raise BadInput(first.source, "script", rule, "keep one of them, or settle conditions with --set")


def _granted(calls: ScriptCalls) -> Iterator[str]:
    """What to say of values that were taken because the text does not settle them."""
    defaults = [
        f"{name}={value}"
        for name, value in calls.variables.defaults.items()
        if value and "/" not in value and not _OF_THE_MACHINE.search(name)
    ]
    if defaults:
        yield f"Defaults of the script are taken: {', '.join(defaults[:12])} (see --set)."
    if calls.assumed:
        yield f"Taken to be unset: {', '.join(calls.assumed)} (see --set)."
    if calls.sourced:
        yield f"Not read: {', '.join(calls.sourced)}, which the script reads."
