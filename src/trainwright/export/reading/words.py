"""The flags of a command line or of the script around it, as a mapping."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainwright.errors import BadInput

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?$")

_ASSIGNED = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)=("[\w.+-]*"|'[\w.+-]*'|[\w.+-]+)[ \t]*(?:[#;].*)?$"""
)
_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[\w.+-]*))?\})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags by name without dashes in front, with `-` for `_`; each with the words after it."""

    values: Mapping[str, tuple[str, ...]]
    source: str

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
        if not text:
            rule = "has no value after it, or a variable that the text does not set"
            raise BadInput(f"{self.source}: --{name}", "", rule, "write the number")
        if not re.fullmatch(r"\d{1,15}", text):
            raise BadInput(f"{self.source}: --{name}", text, "must be a whole number", "correct it")
        return int(text)

    def word(self, name: str, default: str) -> str:
        """A flag's first word; more may be the program's that follows."""
        return (*self.values[name], "")[0] if name in self.values else default


def parse_flags(text: str, source: str) -> Flags:
    """The flags of a text: a command line, a file of arguments, or a bash script with arrays of them."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in _words(_with_variables(text), source):
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = [value] if equals else []
        elif name and _belongs(word):
            found[name].append(word)
        else:
            name = ""
    return Flags(values={key: tuple(values) for key, values in found.items()}, source=source)


def _with_variables(text: str) -> str:
    """The text with the variables that it sets to plain words in their places, as a shell does."""
    known: dict[str, str] = {}

    def value_of(found: re.Match[str]) -> str:
        name, default = found["plain"] or found["name"], found["default"]
        return known.get(name, default if default is not None else found[0])

    lines = []
    for line in text.split("\n"):
        lines.append(_VARIABLE.sub(value_of, line))
        if assigned := _ASSIGNED.match(lines[-1]):
            known[assigned[1]] = assigned[2].strip("\"'")
    return "\n".join(lines)


def _words(text: str, source: str) -> Iterator[str]:
    try:
        lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars="()")
        lexer.whitespace_split = True
        yield from lexer
    except ValueError as error:
        raise BadInput(source, "words", f"cannot be read ({error})", "close its quotes") from None


def _belongs(word: str) -> bool:
    """Whether a word can be a flag's value: no part of the script around it."""
    return bool(_NUMBER.match(word)) or not (word.startswith(("-", "$", "(", ")")) or "$" in word)
