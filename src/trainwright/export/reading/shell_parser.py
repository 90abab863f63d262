"""From the text of a bash script to its statements."""

import re

from trainwright.errors import BadInput
from trainwright.export.reading.shell_syntax import (
    AndOrList,
    Assignment,
    CaseStatement,
    ForLoop,
    IfStatement,
    Literal,
    Pipeline,
    ShellFunction,
    ShellGroup,
    ShellStatement,
    ShellTest,
    ShellWord,
    SimpleCommand,
    WhileLoop,
)
from trainwright.export.reading.shell_words import PLACEHOLDER, ShellText

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]]*)\])?(\+?=)")
_FUNCTION = re.compile(
    r"(?:function[ \t]+([\w:.-]+)[ \t]*(?:\(\s*\))?|([\w:.-]+)[ \t]*\([ \t]*\))\s*(?=[{(])"
)
_REDIRECT = re.compile(r"(?:\d*|&)(?:<<<|<<-?|>>|>&|<&|&>>?|>\||<>|[<>])")
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}
_MOST_CHARACTERS = 200_000
_CLOSING = {"then", "elif", "else", "fi", "do", "done", "esac", "}", ";;"}


def parse_script(text: str, source: str, line: int = 1) -> tuple[ShellStatement, ...]:
    """The statements of a script."""
    if len(text) > _MOST_CHARACTERS:
        rule = f"is longer than {_MOST_CHARACTERS:,} characters"
        raise BadInput(source, "script", rule, "name a file of the arguments alone")
    try:
        parser = _Parser(ShellText(text.replace("\r\n", "\n"), source, line))
        found = parser.statements(set())
        if not parser.text.done():
            raise parser.text.bad(f'"{parser.text.peek(10).split()[0]}" is not expected here')
    except RecursionError:
        raise BadInput(source, "text", "cannot be read: nested too deeply", "simplify it") from None
    return found


class _Parser:
    def __init__(self, text: ShellText) -> None:
        self.text = text
        self.documents: list[tuple[str, bool, int]] = []  # end mark, whether expanded, index in `bodies`
        self.bodies: list[ShellWord | None] = []

    def statements(self, ends: set[str]) -> tuple[ShellStatement, ...]:
        """Statements up to one of some words, which is not read."""
        found: list[ShellStatement] = []
        while True:
            self._separators()
            if self.text.done() or self._keyword() in ends or (self.text.peek() == ")" and ")" in ends):
                return tuple(found)
            if self._keyword() in _CLOSING or self.text.peek() == ")":
                return tuple(found)
            found.append(self._and_or())

    def _separators(self) -> None:
        while True:
            self.text.skip_blanks()
            if self.text.peek() == "\n":
                self.text.at += 1
                self._read_documents()
            elif (self.text.peek() == ";" and self.text.peek(2) != ";;") or (
                self.text.peek() == "&" and self.text.peek(2) != "&&"
            ):
                self.text.at += 1
            else:
                return

    def _keyword(self) -> str:
        """The plain word that comes next, not read."""
        if self.text.peek(2) == ";;":
            return ";;"
        found = re.compile(r"[^\s;&|<>()$'\"`]+").match(self.text.text, self.text.at)
        return found[0] if found else ""

    def _take(self, word: str) -> None:
        self._separators()
        if self._keyword() != word and self.text.peek(len(word)) != word:
            raise self.text.bad(f'"{word}" is missing')
        self.text.at += len(word)

    def _and_or(self) -> ShellStatement:
        first = self._pipeline()
        others: list[tuple[str, ShellStatement]] = []
        while True:
            self.text.skip_blanks()
            operator = self.text.peek(2)
            if operator not in ("&&", "||"):
                return AndOrList(first=first, others=tuple(others)) if others else first
            self.text.at += 2
            self._separators()
            others.append((operator, self._pipeline()))

    def _pipeline(self) -> ShellStatement:
        self.text.skip_blanks()
        negated = self._keyword() == "!"
        if negated:
            self.text.at += 1
        commands = [self._command()]
        while True:
            self.text.skip_blanks()
            if self.text.peek() != "|" or self.text.peek(2) == "||":
                break
            self.text.at += 2 if self.text.peek(2) == "|&" else 1
            self._separators()
            commands.append(self._command())
        if len(commands) == 1 and not negated:
            return commands[0]
        return Pipeline(commands=tuple(commands), negated=negated)

    def _command(self) -> ShellStatement:
        self.text.skip_blanks()
        line, word = self.text.line, self._keyword()
        if word == "if":
            return self._if(line)
        if word in ("while", "until"):
            self.text.at += len(word)
            condition = self.statements({"do"})
            if word == "until":
                condition = (*condition[:-1], Pipeline(commands=condition[-1:], negated=True))
            return self._redirected(WhileLoop(line=line, condition=condition, body=self._do()))
        if word in ("for", "select"):
            return self._redirected(self._for(line, word))
        if word == "case":
            return self._redirected(self._case(line))
        if word == "[[":
            return self._test(line)
        if self.text.peek(2) == "((":
            self.text.at -= 1  # as if a dollar stood before it
            return ShellTest(line=line, arithmetic=self.text._balanced(3, "(", ")", 2))
        function = _FUNCTION.match(self.text.text, self.text.at)
        if function:
            self.text.at = function.end()
            return ShellFunction(name=function[1] or function[2], body=(self._command(),))
        if word == "{":
            self.text.at += 1
            body = self.statements({"}"})
            self._take("}")
            return self._redirected(ShellGroup(body=body))
        if self.text.peek() == "(":
            self.text.at += 1
            body = self.statements({")"})
            self._take(")")
            return self._redirected(ShellGroup(body=body))
        return self._simple(line)

    def _redirected(self, statement: ShellStatement) -> ShellStatement:
        """A compound statement, with the redirections after it read and dropped."""
        while True:
            self.text.skip_blanks()
            found = _REDIRECT.match(self.text.text, self.text.at)
            if not found:
                return statement
            self.text.at = found.end()
            self.text.skip_blanks()
            self.text.read_word()

    def _if(self, line: int) -> IfStatement:
        branches: list[tuple[tuple[ShellStatement, ...] | None, tuple[ShellStatement, ...]]] = []
        word = "if"
        while word in ("if", "elif"):
            self._take(word)
            condition = self.statements({"then"})
            self._take("then")
            branches.append((condition, self.statements({"elif", "else", "fi"})))
            word = self._keyword()
        if word == "else":
            self._take("else")
            branches.append((None, self.statements({"fi"})))
        self._take("fi")
        statement = IfStatement(line=line, branches=tuple(branches))
        self._redirected(statement)
        return statement

    def _do(self) -> tuple[ShellStatement, ...]:
        self._take("do")
        body = self.statements({"done"})
        self._take("done")
        return body

    def _for(self, line: int, word: str) -> ShellStatement:
        self.text.at += len(word)
        self.text.skip_blanks()
        if self.text.peek(2) == "((":
            self.text.at -= 1
            self.text._balanced(3, "(", ")", 2)
            return ForLoop(line=line, name="", words=(), body=self._do())
        name, words = self._keyword(), []
        self.text.at += len(name)
        self._blank_lines()
        if self._keyword() == "in":
            self.text.at += 2
            self.text.skip_blanks()
            while (each := self.text.read_word()) is not None:
                words.append(each)
                self.text.skip_blanks()
        return ForLoop(line=line, name=name, words=tuple(words), body=self._do())

    def _blank_lines(self) -> None:
        while True:
            self.text.skip_blanks()
            if self.text.peek() not in ("\n", ";"):
                return
            self.text.at += 1

    def _case(self, line: int) -> CaseStatement:
        self.text.at += len("case")
        self.text.skip_blanks()
        word = self.text.read_word()
        self._take("in")
        arms = []
        while True:
            self._blank_lines()
            if self._keyword() == "esac":
                break
            if self.text.done() or word is None:
                raise self.text.bad('"esac" is missing')
            arms.append((self._patterns(), self.statements({";;", "esac"})))
            if self.text.peek(2) == ";;":
                self.text.at += 3 if self.text.peek(3) == ";;&" else 2
        self._take("esac")
        if word is None:
            raise self.text.bad("case has no word")
        return CaseStatement(line=line, word=word, arms=tuple(arms))

    def _patterns(self) -> tuple[ShellWord, ...]:
        if self.text.peek() == "(":
            self.text.at += 1
        found = []
        while True:
            self.text.skip_blanks()
            word = self.text.read_word()
            if word is None:
                raise self.text.bad("a pattern is missing")
            found.append(word)
            self.text.skip_blanks()
            mark = self.text.peek()
            self.text.at += 1
            if mark == ")":
                return tuple(found)
            if mark != "|":
                raise self.text.bad('")" is missing after a pattern')

    def _test(self, line: int) -> ShellTest:
        self.text.at += 2
        words: list[ShellWord] = []
        while True:
            self._blank_lines()
            if self._keyword() == "]]":
                self.text.at += 2
                return ShellTest(line=line, words=tuple(words))
            if self.text.done():
                raise self.text.bad('"]]" is missing')
            if self.text.peek(2) in ("&&", "||"):
                words.append(ShellWord(parts=(Literal(text=self.text.peek(2)),)))
                self.text.at += 2
            elif self.text.peek() in "()<>":
                words.append(ShellWord(parts=(Literal(text=self.text.peek()),)))
                self.text.at += 1
            elif word := self.text.read_word(set(" \t\n") if words and words[-1].plain == "=~" else None):
                words.append(word)
            else:
                raise self.text.bad(f'"{self.text.peek()}" is not expected in [[ ]]')

    def _simple(self, line: int) -> ShellStatement:
        assignments: list[Assignment] = []
        words: list[ShellWord] = []
        document: int | None = None
        target: ShellWord | None = None
        while True:
            self.text.skip_blanks()
            redirect = None
            if not PLACEHOLDER.match(self.text.text, self.text.at):
                redirect = _REDIRECT.match(self.text.text, self.text.at)
            if not redirect and (self.text.done() or self.text.peek() in "\n;&|)"):
                break
            if redirect:
                document, target = self._redirect(redirect, document, target)
                continue
            assigned = _ASSIGNED.match(self.text.text, self.text.at)
            declaring = bool(words) and words[0].plain in _DECLARING
            if assigned and (not words or declaring):
                assignments.append(self._assignment(assigned))
                continue
            word = self.text.read_word(inside=bool(words))
            if word is None:
                raise self.text.bad(f'"{self.text.peek()}" is not expected here')
            words.append(word)
        if not words and not assignments and document is None and target is None:
            raise self.text.bad(f'"{self.text.peek()}" is not expected here')
        command = SimpleCommand(line=line, assignments=tuple(assignments), words=tuple(words), target=target)
        return self._with_document(command, document)

    def _with_document(self, command: SimpleCommand, document: int | None) -> SimpleCommand:
        """The command with the text of its here-document, which stands after the line's end."""
        if document is None:
            return command
        at = self.text.at
        end = self.text.text.find("\n", at)
        if end < 0:
            raise self.text.bad("a here-document is missing")
        rest = self.text.text[at:end]
        self.text.at = end + 1
        self._read_documents()
        body = self.bodies[document]
        # what follows on the line of the command is read next, then what follows the document
        self.text.text = self.text.text[: self.text.at] + rest + "\n" + self.text.text[self.text.at :]
        return SimpleCommand(
            line=command.line, assignments=command.assignments, words=command.words, target=command.target,
            document=body,
        )  # fmt: skip

    def _redirect(
        self, found: re.Match[str], document: int | None, target: ShellWord | None
    ) -> tuple[int | None, ShellWord | None]:
        self.text.at = found.end()
        self.text.skip_blanks()
        word = self.text.read_word()
        if word is None:
            raise self.text.bad("a redirection has no target")
        operator = found[0].lstrip("0123456789")
        if operator in ("<<", "<<-"):
            mark = "".join(each.text for each in word.parts if isinstance(each, Literal))
            quoted = any(isinstance(each, Literal) and each.quoted for each in word.parts)
            self.bodies.append(None)
            self.documents.append((mark, not quoted, len(self.bodies) - 1))
            return len(self.bodies) - 1, target
        return document, word if operator in (">", ">>", ">|") and found[0][0] == ">" else target

    def _read_documents(self) -> None:
        """The here-documents that start on this line."""
        for mark, expanded, index in self.documents:
            lines = []
            while True:
                if self.text.done():
                    raise self.text.bad(f'a here-document does not end with "{mark}"')
                end = self.text.text.find("\n", self.text.at)
                end = len(self.text.text) if end < 0 else end
                line = self.text.text[self.text.at : end]
                self.text.at = min(end + 1, len(self.text.text))
                if line.strip() == mark:
                    break
                lines.append(line)
            body = "\n".join(lines)
            self.bodies[index] = (
                self.text.read_document(body.replace('"', '\\"'))
                if expanded
                else ShellWord(parts=(Literal(text=body, quoted=True),))
            )
        self.documents.clear()

    def _assignment(self, found: re.Match[str]) -> Assignment:
        self.text.at = found.end()
        append, index = found[3] == "+=", found[2] or ""
        if self.text.peek() != "(":
            value = self.text.read_word() or ShellWord(parts=())
            return Assignment(name=found[1], value=value, append=append, index=index)
        self.text.at += 1
        words: list[ShellWord] = []
        while True:
            self._blank_lines()
            if self.text.peek() == ")":
                self.text.at += 1
                return Assignment(name=found[1], value=tuple(words), append=append)
            word = self.text.read_word(inside=True)
            if word is None:
                raise self.text.bad(f'an array "{found[1]}" is not closed', "close it")
            words.append(word)
