"""Reading the words of a bash script, character by character."""

import re

from trainwright.errors import BadInput
from trainwright.export.reading.shell_syntax import (
    Arithmetic,
    Expansion,
    Literal,
    ShellWord,
    Substitution,
    WordPart,
)

_NAME = re.compile(r"[A-Za-z_]\w*")
_IN_BRACES = re.compile(
    r"(?P<prefix>[#!]?)(?P<name>[A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<operator>:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:|@)?"
)
PLACEHOLDER = re.compile(r"<[A-Za-z][^<>\n|&;$]*>")  # which people leave to be filled in
_ENDS = set(" \t\n;&|<>()")


class ShellText:
    """A script and how far it has been read."""

    def __init__(self, text: str, source: str, line: int = 1) -> None:
        self.text, self.source, self.at = text, source, 0
        self._counted = (0, line)  # how far lines have been counted, and the line there

    @property
    def line(self) -> int:
        """The line that is being read."""
        start, line = self._counted
        if self.at >= start:
            self._counted = (self.at, line + self.text.count("\n", start, self.at))
        return self._counted[1]

    def peek(self, count: int = 1) -> str:
        """The characters that come next."""
        return self.text[self.at : self.at + count]

    def done(self) -> bool:
        """Whether nothing is left."""
        return self.at >= len(self.text)

    def skip_blanks(self) -> None:
        """Go past spaces, continued lines and comments."""
        while not self.done():
            if self.peek() in " \t\r":
                self.at += 1
            elif self.peek(2) == "\\\n":
                self.at += 2
            elif self.peek(3) == "\\\r\n":
                self.at += 3
            elif self.peek() == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def bad(self, rule: str, remedy: str = "correct it") -> BadInput:
        """An error at the place that has been reached."""
        return BadInput(self.source, f"line {self.line}", f"cannot be read: {rule}", remedy)

    def read_word(self, ends: set[str] | None = None, *, inside: bool = False) -> ShellWord | None:
        """The next word; None if none starts here. `inside` a command, parentheses belong to words."""
        ends = ends or _ENDS
        parts: list[WordPart] = []
        start = self.at
        while not self.done():
            char = self.peek()
            if found := PLACEHOLDER.match(self.text, self.at):
                parts.append(Substitution(text=found[0]))
                self.at = found.end()
            elif char == "(" and inside:
                parts.append(Literal(text=self._in_parentheses()))
            elif char in ends:
                break
            else:
                parts += self._read_part(char)
        return ShellWord(parts=tuple(parts)) if self.at > start else None

    def _read_part(self, char: str) -> list[WordPart]:
        if char == "\\":
            escaped = self.peek(2)[1:]
            self.at += 2
            return [] if escaped in ("\n", "") else [Literal(text=escaped, quoted=True)]
        if char == "'":
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise self.bad("a quote is not closed", "close its quotes")
            found = self.text[self.at + 1 : end]
            self.at = end + 1
            return [Literal(text=found, quoted=True)]
        if char == '"':
            self.at += 1
            return self._read_quoted()
        if char == "$":
            return [self._read_dollar(quoted=False)]
        if char == "`":
            return [self._read_backquoted(quoted=False)]
        self.at += 1
        return [Literal(text=char)]

    def _read_quoted(self) -> list[WordPart]:
        """What stands between double quotes."""
        parts: list[WordPart] = [Literal(text="", quoted=True)]
        while not self.done():
            char = self.peek()
            if char == '"':
                self.at += 1
                return parts
            if char == "\\" and self.peek(2)[1:] in ("$", '"', "\\", "`", "\n"):
                escaped = self.peek(2)[1:]
                self.at += 2
                parts += [] if escaped == "\n" else [Literal(text=escaped, quoted=True)]
            elif char == "$":
                parts.append(self._read_dollar(quoted=True))
            elif char == "`":
                parts.append(self._read_backquoted(quoted=True))
            else:
                self.at += 1
                parts.append(Literal(text=char, quoted=True))
        raise self.bad("a quote is not closed", "close its quotes")

    def read_document(self, text: str) -> ShellWord:
        """The word of a here-document, whose expansions are those of a quoted text."""
        inner = ShellText(text + '"', self.source)
        return ShellWord(parts=tuple(inner._read_quoted()))

    def _read_dollar(self, *, quoted: bool) -> WordPart:
        if self.peek(3) == "$((":
            return Arithmetic(text=self._balanced(3, "(", ")", 2), quoted=quoted)
        if self.peek(2) == "$(":
            return Substitution(text=self._balanced(2, "(", ")", 1), quoted=quoted)
        if self.peek(2) == "${":
            return self._in_braces(self._balanced(2, "{", "}", 1), quoted=quoted)
        if self.peek(2) in ("$'", '$"') and not quoted:
            self.at += 1
            return Literal(text="", quoted=True)
        if name := _NAME.match(self.text, self.at + 1):
            self.at = name.end()
            return Expansion(name=name[0], quoted=quoted)
        special = self.peek(2)[1:]
        if special and (special.isdigit() or special in "@*#?$!-"):
            self.at += 2
            return Expansion(name=special, quoted=quoted)
        self.at += 1
        return Literal(text="$", quoted=quoted)

    def _read_backquoted(self, *, quoted: bool) -> Substitution:
        end = self.text.find("`", self.at + 1)
        if end < 0:
            raise self.bad("a quote is not closed", "close its quotes")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return Substitution(text=found, quoted=quoted)

    def _in_braces(self, text: str, *, quoted: bool) -> WordPart:
        found = _IN_BRACES.match(text)
        if not found:
            return Substitution(text=text, quoted=quoted)
        rest = text[found.end() :]
        operator = found["operator"] or ""
        argument = None
        if operator:
            argument = ShellText(rest, self.source, self.line).read_word(set()) or ShellWord(parts=())
        elif rest:
            return Substitution(text=text, quoted=quoted)
        return Expansion(
            name=found["name"], operator=operator, argument=argument, index=found["index"] or "",
            prefix=found["prefix"], quoted=quoted,
        )  # fmt: skip

    def _balanced(self, opening: int, left: str, right: str, depth: int) -> str:
        """What stands between brackets that were opened so many characters long; quotes inside count."""
        start = at = self.at + opening
        closing = depth
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif char == "'" and left == "(":
                at = self.text.find("'", at + 1)
                if at < 0:
                    break
            elif char == left:
                depth += 1
            elif char == right:
                depth -= 1
                if not depth:
                    self.at = at + 1
                    return self.text[start : at + 1 - closing]
            at += 1
        raise self.bad(f'"{left}" is not closed', "close it")

    def _in_parentheses(self) -> str:
        return f"({self._balanced(1, '(', ')', 1)})"
