"""Expansion of a script's words, by the variables that it has set."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import translate

from trainwright.errors import BadInput
from trainwright.export.reading.python_text import parse_expression
from trainwright.export.reading.shell_syntax import (
    Arithmetic,
    Expansion,
    Literal,
    ShellWord,
    Substitution,
    WordPart,
)
from trainwright.export.reading.shell_values import (
    MOST_CHARACTERS,
    ShellValue,
    Unsettled,
    joined,
    split_words,
    value_of,
)

Variable = ShellValue | list[ShellValue]
_NUMBER = re.compile(r"-?\d{1,18}")
_MOST_NUMBER = 10**18


@dataclass(slots=True, kw_only=True)
class ShellVariables:
    """The variables of a script as it runs; `stated` are the user's and go before what the script sets."""

    source: str
    stated: Mapping[str, str] = field(default_factory=dict)
    values: dict[str, Variable] = field(default_factory=dict)
    positional: list[ShellValue] | None = None
    used: set[str] = field(default_factory=set)  # of the stated ones
    defaults: dict[str, str] = field(default_factory=dict)  # taken because the text does not set a name

    def copy(self) -> "ShellVariables":
        """The same variables, to be changed on their own."""
        values = {name: [*each] if isinstance(each, list) else each for name, each in self.values.items()}
        return ShellVariables(
            source=self.source, stated=self.stated, values=values, positional=self.positional,
            used=self.used, defaults=self.defaults,
        )  # fmt: skip

    def find(self, name: str) -> Variable | None:
        """The value of a variable; None if it is not set."""
        if name in self.stated and not name.isdigit():
            self.used.add(name)
            return value_of(self.stated[name])
        if self.positional is not None and (name in ("@", "*") or name.isdigit()):
            self.used.update(each for each in self.stated if each.isdigit())
        if name.isdigit() and self.positional is not None and name != "0":
            at = int(name[:6]) - 1
            return self.positional[at] if at < len(self.positional) else value_of("")
        if name in ("@", "*") and self.positional is not None:
            return [*self.positional]
        if name == "#" and self.positional is not None:
            return value_of(str(len(self.positional)))
        return self.values.get(name)

    def assign(self, name: str, value: Variable) -> None:
        """Set a variable."""
        size = sum(_size(each) for each in value) if isinstance(value, list) else _size(value)
        if size > MOST_CHARACTERS:
            rule = f"grows beyond {MOST_CHARACTERS:,} characters"
            raise BadInput(f"{self.source}: variable", name, rule, "write out what it holds")
        self.values[name] = value


def _size(value: ShellValue) -> int:
    return sum(len(each) if isinstance(each, str) else 1 + _options_size(each) for each in value.pieces)


def _options_size(part: Unsettled) -> int:
    return sum(_size(word) for option in part.options for word in option)


def expand_fields(word: ShellWord, variables: ShellVariables) -> list[ShellValue]:
    """The words that one word becomes."""
    fields: list[list[str | Unsettled]] = []
    open_field = no_elements = False

    def add(pieces: tuple[str | Unsettled, ...], *, new: bool) -> None:
        if new or not fields:
            fields.append([])
        fields[-1].extend(pieces)

    for part in word.parts:
        value = _part(part, variables)
        quoted = isinstance(part, Literal) or part.quoted
        if isinstance(value, list):  # an array, an element a field
            no_elements = no_elements or not value
            elements = value if quoted else [each for one in value for each in split_words(one)]
            for index, each in enumerate(elements):
                add(each.pieces, new=index > 0 or not open_field)
                open_field = True
        elif quoted:
            add(value.pieces or ("",), new=not open_field)
            open_field = True
        else:
            starts = value.pieces and isinstance(value.pieces[0], str) and value.pieces[0][:1].isspace()
            ends = value.pieces and isinstance(value.pieces[-1], str) and value.pieces[-1][-1:].isspace()
            for index, each in enumerate(split_words(value)):
                add(each.pieces, new=index > 0 or not open_field or bool(starts))
                open_field = True
            open_field = open_field and not ends
    found = [value_of(*each) for each in fields]
    return [] if no_elements and not any(each.pieces for each in found) else found


def expand_value(word: ShellWord, variables: ShellVariables) -> ShellValue:
    """The value of a word that is not cut into several, as on the right of an assignment."""
    pieces: list[str | Unsettled] = []
    for part in word.parts:
        value = _part(part, variables)
        pieces += (joined(value) if isinstance(value, list) else value).pieces
    return value_of(*pieces)


def _part(part: WordPart, variables: ShellVariables) -> Variable:
    match part:
        case Literal(text=text):
            return value_of(text)
        case Arithmetic(text=text):
            return _arithmetic_value(text, variables)
        case Substitution(text=text):
            blank = text.startswith("<")
            reason = f'"{_short(text)}" is to be filled in' if blank else f'"$({_short(text)})" is not run'
            return value_of(Unsettled(reason=reason))
        case Expansion():
            return _expansion(part, variables)


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 40 else words[:39] + "…"


def missing(name: str) -> Unsettled:
    """A variable that the text does not set."""
    what = "the script's arguments" if name in ("@", "*") else f"${name}"
    return Unsettled(reason=f"{what} is not set in the text", names=(name,))


def _expansion(part: Expansion, variables: ShellVariables) -> Variable:
    name = part.name
    if part.prefix == "!" and not part.index:
        target = variables.find(name)
        known = target.text if isinstance(target, ShellValue) else None
        if not known:
            return value_of(missing(name))
        name = known
    found = _indexed(variables.find(name), "@" if name in ("@", "*") else _index_text(part.index, variables))
    if part.prefix == "#":
        return _length(found, name)
    if part.operator in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
        return _or_default(part, name, found, variables)
    if found is None:
        return value_of(missing(name))
    if part.operator == ":" and isinstance(found, list) and part.argument:
        start = expand_value(part.argument, variables).text or ""
        whole = re.fullmatch(r"\s*\d{1,6}\s*", start)
        first = int(start) - (name in ("@", "*")) if whole else 0
        return found[max(first, 0) :] if whole else [value_of(missing(name))]
    if part.operator and isinstance(found, ShellValue):
        return _edited(part, found, variables)
    return found


def _index_text(index: str, variables: ShellVariables) -> str:
    """An index with its variables in their places; empty if one of them is not known."""

    def text_of(found: re.Match[str]) -> str:
        value = variables.find(found[1])
        return (value.text or "$") if isinstance(value, ShellValue) else "$"

    return re.sub(r"\$\{?([A-Za-z_]\w*|\d)\}?", text_of, index).strip("\"'")


def _indexed(found: Variable | None, index: str) -> Variable | None:
    """An element of an array, by number or by key; the whole array for `@`."""
    if not isinstance(found, list):
        return [found] if found is not None and index in ("@", "*") else found
    if index in ("@", "*"):
        return found
    keyed = [each for each in found if each.shown.startswith("[") and "]=" in each.shown]
    for each in reversed(keyed):
        key, _, rest = str(each.pieces[0]).partition("]=")
        if key[1:].strip("\"'") == index:
            return value_of(rest, *each.pieces[1:])
    if keyed or not (index.isdigit() or not index) or len(index) > 6:
        return value_of(Unsettled(reason=f'element "{index}" of an array is not known'))
    at = int(index or 0)
    return found[at] if at < len(found) else value_of("")


def _length(found: Variable | None, name: str) -> ShellValue:
    if found is None:
        return value_of(missing(name))
    if isinstance(found, list):
        part = next((each.unsettled for each in found if each.unsettled), None)
        return value_of(part or str(len(found)))
    return value_of(str(len(found.text))) if found.text is not None else value_of(found.unsettled or "")


def _or_default(part: Expansion, name: str, found: Variable | None, variables: ShellVariables) -> Variable:
    argument = part.argument or ShellWord(parts=())
    empty = found is None or (":" in part.operator and not isinstance(found, list) and found.text == "")
    if "+" in part.operator:
        return value_of("") if empty else expand_value(argument, variables)
    if not empty and found is not None:
        return found
    if "?" in part.operator:
        return value_of(missing(name))
    value = expand_value(argument, variables)
    if found is None and value.text is not None:
        variables.defaults[name] = value.text
    if "=" in part.operator:
        variables.assign(name, value)
    return value


def _edited(part: Expansion, found: ShellValue, variables: ShellVariables) -> ShellValue:
    """`${name#…}`, `${name%…}`, `${name/…/…}`, `${name^^}`, `${name:…}`."""
    argument = expand_value(part.argument, variables).text if part.argument else ""
    text, operator = found.text, part.operator
    if text is None or argument is None:
        return value_of(found.unsettled or Unsettled(reason=f"${{{part.name}{operator}…}} is not known"))
    if operator in ("^^", ",,"):
        return value_of(text.upper() if operator == "^^" else text.lower())
    if operator in ("#", "##", "%", "%%"):
        return value_of(_trimmed(text, argument, operator))
    if operator in ("/", "//") and not re.search(r"[*?\[\]]", argument):
        old, _, new = argument.partition("/")
        return value_of(text.replace(old, new, -1 if operator == "//" else 1) if old else text)
    bounds = [each.strip() for each in argument.split(":")]
    if operator == ":" and len(bounds) <= 2 and all(re.fullmatch(r"\d{1,6}", each) for each in bounds):
        start = int(bounds[0])
        return value_of(text[start : start + int(bounds[1])] if len(bounds) == 2 else text[start:])
    return value_of(Unsettled(reason=f"${{{part.name}{operator}…}} is not understood"))


def _trimmed(text: str, pattern: str, operator: str) -> str:
    """The text without the shortest or longest start or end that a pattern matches."""
    if len(text) > 2000:
        return text
    matches = re.compile(translate(pattern)).fullmatch
    sizes = range(len(text) + 1) if len(operator) == 1 else range(len(text), -1, -1)
    for size in sizes:
        if operator[0] == "#" and matches(text[:size]):
            return text[size:]
        if operator[0] == "%" and matches(text[len(text) - size :]):
            return text[: len(text) - size]
    return text


def _arithmetic_value(text: str, variables: ShellVariables) -> ShellValue:
    number = arithmetic(text, variables)
    return value_of(number if isinstance(number, Unsettled) else str(number))


def arithmetic(text: str, variables: ShellVariables) -> int | Unsettled:
    """The whole number of an arithmetic expression."""
    plain = re.sub(r"\$\{?([A-Za-z_]\w*|\d+|#)\}?", lambda m: _named(m[1]), text)
    for theirs, ours in (("&&", " and "), ("||", " or "), ("/", "//")):
        plain = plain.replace(theirs, ours)
    plain = re.sub(r"!(?!=)", " not ", plain).strip()
    try:
        return _number(parse_expression(plain), variables)
    except _Unread as error:
        return error.part
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return Unsettled(reason=f'"$(({_short(text)}))" is not understood')


def _named(name: str) -> str:
    return {"#": "_count"}.get(name, f"_{name}" if name.isdigit() else name)


class _Unread(Exception):
    def __init__(self, part: Unsettled) -> None:
        self.part = part
        super().__init__(part.reason)


def _number(node: ast.expr, variables: ShellVariables) -> int:
    match node:
        case ast.Constant(value=int(number)):
            result = int(number)
        case ast.Name(id=name):
            result = _variable_number(name, variables)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            result = -_number(inner, variables)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            result = int(not _number(inner, variables))
        case ast.BoolOp(op=operator, values=values):
            found = [bool(_number(each, variables)) for each in values]
            result = int(all(found) if isinstance(operator, ast.And) else any(found))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            result = int(_compared(operator, _number(left, variables), _number(right, variables)))
        case ast.BinOp(left=left, op=operator, right=right):
            result = _combined(operator, _number(left, variables), _number(right, variables))
        case _:
            raise ValueError
    if abs(result) > _MOST_NUMBER:
        raise ValueError
    return result


def _variable_number(name: str, variables: ShellVariables) -> int:
    name = {"_count": "#"}.get(name, name[1:] if name[1:].isdigit() else name)
    found = variables.find(name)
    value = found[0] if isinstance(found, list) and found else found
    if not isinstance(value, ShellValue):
        raise _Unread(missing(name))
    if value.text is None:
        raise _Unread(value.unsettled or missing(name))
    if not _NUMBER.fullmatch(value.text.strip()):
        raise ValueError
    return int(value.text)


def _compared(operator: ast.cmpop, left: int, right: int) -> bool:
    match operator:
        case ast.Eq():
            return left == right
        case ast.NotEq():
            return left != right
        case ast.Lt():
            return left < right
        case ast.LtE():
            return left <= right
        case ast.Gt():
            return left > right
        case ast.GtE():
            return left >= right
    raise ValueError


def _combined(operator: ast.operator, left: int, right: int) -> int:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            quotient = abs(left) // abs(right)
            return quotient if (left < 0) == (right < 0) else -quotient
        case ast.Mod():
            return left - right * _combined(ast.FloorDiv(), left, right)
        case ast.Pow() if 0 <= right <= 60 and abs(left) <= 10:
            return int(left**right)
    raise ValueError
