"""Conditions of a script: true, false, or not settled by its text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import translate

from trainwright.export.reading.shell_expand import ShellVariables, expand_value
from trainwright.export.reading.shell_syntax import Expansion, ShellWord
from trainwright.export.reading.shell_values import ShellValue, Unsettled

_WHOLE = re.compile(r"-?\d{1,18}")
_NUMERIC = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip
_TEXTUAL = ("=", "==", "!=", "=~", "<", ">")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """Whether a condition holds; None if the text does not settle it.

    `assumed` are variables that the condition takes to be unset because nothing sets them.
    """

    holds: bool | None
    names: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __invert__(self) -> "ConditionResult":
        holds = None if self.holds is None else not self.holds
        return ConditionResult(holds=holds, names=self.names, assumed=self.assumed)


def both(first: ConditionResult, second: ConditionResult) -> ConditionResult:
    """The two with `&&`."""
    if first.holds is False or second.holds is False:
        return next(each for each in (first, second) if each.holds is False)
    holds = True if first.holds and second.holds else None
    return ConditionResult(
        holds=holds, names=first.names + second.names, assumed=first.assumed + second.assumed
    )


def any_of(first: ConditionResult, second: ConditionResult) -> ConditionResult:
    """The two with `||`."""
    return ~both(~first, ~second)


def test_words(words: Sequence[ShellWord], variables: ShellVariables, *, patterns: bool) -> ConditionResult:
    """What `[ … ]` (without patterns) or `[[ … ]]` says."""
    found = _Condition(words, variables, patterns=patterns)
    result = found.any()
    return result if found.at == len(words) else ConditionResult(holds=None, names=result.names)


class _Condition:
    def __init__(self, words: Sequence[ShellWord], variables: ShellVariables, *, patterns: bool) -> None:
        self.words, self.variables, self.patterns, self.at = words, variables, patterns, 0

    def _next(self) -> str | None:
        return self.words[self.at].plain if self.at < len(self.words) else None

    def any(self) -> ConditionResult:
        found = self._all()
        while self._next() in ("||", "-o"):
            self.at += 1
            found = any_of(found, self._all())
        return found

    def _all(self) -> ConditionResult:
        found = self._one()
        while self._next() in ("&&", "-a"):
            self.at += 1
            found = both(found, self._one())
        return found

    def _one(self) -> ConditionResult:
        word = self._next()
        if word == "!":
            self.at += 1
            return ~self._one()
        if word in ("(", "\\("):
            self.at += 1
            found = self.any()
            self.at += 1
            return found
        if self.at + 2 < len(self.words) + 0 and self._operator(1):
            left, operator, right = self.words[self.at], self._operator(1), self.words[self.at + 2]
            self.at += 3
            return self._compared(left, operator, right)
        if word is not None and re.fullmatch(r"-[a-zA-Z]", word) and self.at + 1 < len(self.words):
            self.at += 2
            return self._unary(word, self.words[self.at - 1])
        if self.at < len(self.words):
            self.at += 1
            return self._unary("-n", self.words[self.at - 1])
        return ConditionResult(holds=False)

    def _operator(self, ahead: int) -> str:
        word = self.words[self.at + ahead].plain if self.at + ahead < len(self.words) else None
        return word if word in _NUMERIC or word in _TEXTUAL else ""

    def _unary(self, operator: str, word: ShellWord) -> ConditionResult:
        if operator not in ("-z", "-n", "-v"):
            return ConditionResult(holds=None, names=_names(word))
        lone = _lone_variable(word)
        if operator == "-v":
            return ConditionResult(holds=self.variables.find(word.plain or "") is not None)
        if lone and not lone.isdigit() and lone not in ("@", "*", "#") and self.variables.find(lone) is None:
            return ConditionResult(holds=operator == "-z", names=(lone,), assumed=(lone,))
        value = expand_value(word, self.variables)
        if value.text is None:
            known = any(isinstance(each, str) and each for each in value.pieces)
            return ConditionResult(holds=(operator == "-n") if known else None, names=_unsettled_names(value))
        return ConditionResult(holds=(value.text == "") == (operator == "-z"))

    def _compared(self, left: ShellWord, operator: str, right: ShellWord) -> ConditionResult:
        first, second = expand_value(left, self.variables), expand_value(right, self.variables)
        names = (*_unsettled_names(first), *_unsettled_names(second))
        if first.text is None or second.text is None:
            return ConditionResult(holds=None, names=names)
        if operator in _NUMERIC:
            if not (_WHOLE.fullmatch(first.text.strip()) and _WHOLE.fullmatch(second.text.strip())):
                return ConditionResult(holds=False)
            return ConditionResult(holds=_NUMERIC[operator](int(first.text), int(second.text)))
        if operator == "=~":
            return _matched(first.text, second.text)
        if operator in ("<", ">"):
            holds = first.text < second.text if operator == "<" else first.text > second.text
            return ConditionResult(holds=holds)
        same = first.text == second.text
        if self.patterns and not same:
            same = matches_pattern(first.text, right, second.text)
        return ConditionResult(holds=same == (operator != "!="))


def matches_pattern(text: str, word: ShellWord, pattern: str) -> bool:
    """Whether a text is what a pattern describes; a quoted word describes itself only."""
    if not re.search(r"[*?\[]", pattern) or len(pattern) > 200:
        return text == pattern
    bare = "".join(getattr(each, "text", "") for each in word.parts if not each.quoted)
    if not re.search(r"[*?\[]", bare):
        return text == pattern
    return re.compile(translate(pattern)).fullmatch(text) is not None


def _matched(text: str, expression: str) -> ConditionResult:
    """What a regular expression of letters, digits, anchors and plain classes says."""
    if not re.fullmatch(r"\^?[\w .:/+-]*\$?|\^\[0-9\]\+\$", expression):
        return ConditionResult(holds=None)
    return ConditionResult(holds=re.search(expression, text) is not None)


def _lone_variable(word: ShellWord) -> str:
    """The variable that is all there is in a word."""
    parts = [each for each in word.parts if getattr(each, "text", "x") != ""]
    if len(parts) == 1 and isinstance(parts[0], Expansion):
        only = parts[0]
        empty = only.argument is None or not only.argument.parts
        if not only.prefix and not only.index and (not only.operator or empty):
            return only.name
    return ""


def _names(word: ShellWord) -> tuple[str, ...]:
    return tuple(each.name for each in word.parts if isinstance(each, Expansion))


def _unsettled_names(value: ShellValue) -> tuple[str, ...]:
    return tuple(name for each in value.pieces if isinstance(each, Unsettled) for name in each.names)
