"""Running a bash script without its commands: what they would be called with."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.errors import BadInput
from trainwright.export.reading.shell_conditions import (
    ConditionResult,
    any_of,
    both,
    matches_pattern,
    test_words,
)
from trainwright.export.reading.shell_expand import (
    ShellVariables,
    arithmetic,
    expand_fields,
    expand_value,
    missing,
)
from trainwright.export.reading.shell_parser import parse_script
from trainwright.export.reading.shell_syntax import (
    AndOrList,
    Assignment,
    CaseStatement,
    ForLoop,
    IfStatement,
    Pipeline,
    ShellFunction,
    ShellGroup,
    ShellStatement,
    ShellTest,
    ShellWord,
    SimpleCommand,
    WhileLoop,
)
from trainwright.export.reading.shell_values import (
    ShellValue,
    Unsettled,
    either,
    either_list,
    value_of,
)

_MOST_STATEMENTS = 3_000
_MOST_ROUNDS = 100  # of a loop
_MOST_DEPTH = 20  # of functions and of texts that are scripts
_UNKNOWN = ConditionResult(holds=None)
_TRUE, _FALSE = ConditionResult(holds=True), ConditionResult(holds=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledCommand:
    """A command as the script calls it; `under` are the conditions that the text does not settle."""

    line: int
    words: tuple[ShellValue, ...]
    under: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # variables that are set for it alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCalls:
    """What a script calls, and what it takes for granted."""

    commands: tuple[CalledCommand, ...]
    variables: ShellVariables
    documents: Mapping[str, str] = field(default_factory=dict)  # here-documents by file
    assumed: tuple[str, ...] = ()  # variables taken to be unset
    sourced: tuple[str, ...] = ()  # files that the script reads and we do not


class _Exit(Exception):
    """The script, a function or a round of a loop ends here."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


def run_script(text: str, source: str, stated: Mapping[str, str] | None = None) -> ScriptCalls:
    """The commands of a script, with variables as it sets them and as the user states them."""
    stated = dict(stated or {})
    variables = ShellVariables(source=source, stated=stated)
    places = {name: value for name, value in stated.items() if name.isdigit()}
    if places:
        count = max(int(name) for name in places)
        variables.positional = [value_of(places.get(str(at + 1), "")) for at in range(min(count, 99))]
    run = _Run(source, variables)
    try:
        run.statements(parse_script(text, source))
    except _Exit:
        pass
    except RecursionError:
        raise BadInput(source, "text", "cannot be read: nested too deeply", "simplify it") from None
    return ScriptCalls(
        commands=tuple(run.commands), variables=run.variables, documents=run.documents,
        assumed=tuple(dict.fromkeys(run.assumed)), sourced=tuple(dict.fromkeys(run.sourced)),
    )  # fmt: skip


class _Run:
    def __init__(self, source: str, variables: ShellVariables) -> None:
        self.source, self.variables = source, variables
        self.commands: list[CalledCommand] = []
        self.documents: dict[str, str] = {}
        self.assumed: list[str] = []
        self.sourced: list[str] = []
        self.functions: dict[str, tuple[ShellStatement, ...]] = {}
        self.under: list[str] = []
        self.count = self.depth = 0

    def statements(self, statements: Sequence[ShellStatement]) -> ConditionResult:
        result = _TRUE
        for each in statements:
            result = self.statement(each)
        return result

    def statement(self, statement: ShellStatement) -> ConditionResult:
        self.count += 1
        if self.count > _MOST_STATEMENTS:
            rule = f"runs more than {_MOST_STATEMENTS:,} statements"
            raise BadInput(self.source, "script", rule, "name a file of the arguments alone")
        match statement:
            case SimpleCommand():
                return self._simple(statement)
            case ShellTest(arithmetic=text) if text:
                found = arithmetic(text, self.variables)
                if isinstance(found, Unsettled):
                    return ConditionResult(holds=None, names=found.names)
                return ConditionResult(holds=bool(found))
            case ShellTest(words=words):
                return test_words(words, self.variables, patterns=True)
            case Pipeline(commands=commands, negated=negated):
                results = [self.statement(each) for each in commands]
                return ~results[-1] if negated else results[-1]
            case AndOrList():
                return self._and_or(statement)
            case IfStatement(line=line, branches=branches):
                return self._if(line, branches)
            case CaseStatement():
                return self._case(statement)
            case ForLoop():
                return self._for(statement)
            case WhileLoop():
                return self._while(statement)
            case ShellGroup(body=body):
                return self.statements(body)
            case ShellFunction(name=name, body=body):
                self.functions[name] = body
                return _TRUE

    def _and_or(self, statement: AndOrList) -> ConditionResult:
        result = self.statement(statement.first)
        for operator, other in statement.others:
            runs = result if operator == "&&" else ~result
            if runs.holds is None:
                # an unknown command is taken to succeed: only conditions leave what follows open
                if not runs.names and operator == "||":
                    continue
                if not runs.names:
                    result = self.statement(other)
                    continue
                self._open(runs, [(other,), ()], self._line_of(statement))
                result = (both if operator == "&&" else any_of)(result, _UNKNOWN)
            elif runs.holds:
                self.assumed += runs.assumed
                result = self.statement(other)
            else:
                self.assumed += runs.assumed
        return result

    def _line_of(self, statement: ShellStatement) -> int:
        while isinstance(statement, AndOrList | Pipeline):
            statement = statement.first if isinstance(statement, AndOrList) else statement.commands[0]
        return getattr(statement, "line", 0)

    def _if(
        self,
        line: int,
        branches: Sequence[tuple[tuple[ShellStatement, ...] | None, tuple[ShellStatement, ...]]],
    ) -> ConditionResult:
        for index, (condition, body) in enumerate(branches):
            if condition is None:
                return self.statements(body)
            result = self.statements(condition)
            if result.holds is None:
                rest = IfStatement(line=line, branches=tuple(branches[index + 1 :]))
                self._open(result, [body, (rest,) if rest.branches else ()], line)
                return _UNKNOWN
            if result.holds and not (result.assumed and self._ends(body)):
                self.assumed += result.assumed
                return self.statements(body)
            if not result.holds:
                self.assumed += result.assumed
        return _TRUE

    def _ends(self, body: tuple[ShellStatement, ...]) -> bool:
        """Whether a branch leaves the script before it calls anything: then its condition is not the case."""
        trial = self._branch()
        try:
            trial.statements(body)
        except _Exit as end:
            return end.kind == "exit"
        finally:
            self.count = trial.count
        return False

    def _branch(self) -> "_Run":
        """The same run, to be continued on its own."""
        branch = _Run(self.source, self.variables.copy())
        branch.documents, branch.functions = dict(self.documents), dict(self.functions)
        branch.under, branch.depth, branch.count = [*self.under], self.depth, self.count
        return branch

    def _open(self, result: ConditionResult, bodies: Sequence[tuple[ShellStatement, ...]], line: int) -> None:
        """Run each of some bodies, of which the text does not say which runs; what differs stays open."""
        names = tuple(dict.fromkeys(result.names))
        which = ", ".join(f"${name}" for name in names) or "a command that is not run"
        reason = f"depends on {which} (line {line})"
        ended: list[_Run] = []
        for body in bodies:
            branch = self._branch()
            branch.under.append(reason)
            try:
                branch.statements(body)
                ended.append(branch)
            except _Exit as end:
                if end.kind != "exit":
                    ended.append(branch)
            self.count = branch.count
            self.commands += branch.commands
            self.documents |= branch.documents
            self.functions |= branch.functions
            self.assumed += branch.assumed
            self.sourced += branch.sourced
        if not ended:
            raise _Exit("exit")
        self.variables.positional = ended[0].variables.positional
        self._merge([each.variables for each in ended], reason, names)

    def _merge(self, states: Sequence[ShellVariables], reason: str, names: tuple[str, ...]) -> None:
        for name in {name: None for each in states for name in each.values}:
            values = [each.values.get(name, value_of("")) for each in states]
            if all(each == values[0] for each in values):
                self.variables.values[name] = values[0]
            elif any(isinstance(each, list) for each in values):
                lists = [each if isinstance(each, list) else [each] for each in values]
                lists = [[] if each == [value_of("")] else each for each in lists]
                self.variables.assign(name, either_list(lists, reason, names))
            else:
                texts = [each for each in values if isinstance(each, ShellValue)]
                self.variables.assign(name, either(texts, reason, names))

    def _case(self, statement: CaseStatement) -> ConditionResult:
        value = expand_value(statement.word, self.variables)
        if value.text is None:
            names = value.unsettled.names if value.unsettled else ()
            bodies = [body for _, body in statement.arms]
            if not any(pattern.plain == "*" for patterns, _ in statement.arms for pattern in patterns):
                bodies.append(())
            self._open(ConditionResult(holds=None, names=names), bodies, statement.line)
            return _UNKNOWN
        for patterns, body in statement.arms:
            for pattern in patterns:
                text = expand_value(pattern, self.variables).text
                if text is not None and matches_pattern(value.text, pattern, text):
                    return self.statements(body)
        return _TRUE

    def _for(self, statement: ForLoop) -> ConditionResult:
        words = [each for word in statement.words for each in expand_fields(word, self.variables)]
        if not statement.name:
            self._open(_UNKNOWN, [statement.body, ()], statement.line)
            return _UNKNOWN
        for word in words[:_MOST_ROUNDS]:
            self.variables.assign(statement.name, word)
            if not self._runs_body(statement.body):
                break
        return _TRUE

    def _runs_body(self, body: Sequence[ShellStatement]) -> bool:
        """Run the body of a loop once; whether the loop continues after it."""
        try:
            self.statements(body)
        except _Exit as end:
            if end.kind not in ("break", "continue"):
                raise
            return end.kind == "continue"
        return True

    def _while(self, statement: WhileLoop) -> ConditionResult:
        for _ in range(_MOST_ROUNDS):
            result = self.statements(statement.condition)
            if result.holds is None and not {"#", "1", "@"} & set(result.names) and result.names:
                self._open(result, [statement.body, ()], statement.line)
                return _UNKNOWN
            if not result.holds:  # a loop over the script's arguments has none to go over
                return _TRUE
            if not self._runs_body(statement.body):
                break
        return _TRUE

    def _simple(self, command: SimpleCommand) -> ConditionResult:
        if command.document is not None and command.target is not None:
            target = expand_value(command.target, self.variables)
            body = expand_value(command.document, self.variables)
            self.documents[target.shown.rpartition("/")[2]] = body.shown
        words = [each for word in command.words for each in expand_fields(word, self.variables)]
        name = words[0].text if words else None
        if not words or name in ("export", "declare", "local", "readonly", "typeset"):
            for each in command.assignments:
                self._assign(each)
            return _TRUE
        if name in ("[", "test"):
            inside = command.words[1:-1] if name == "[" else command.words[1:]
            return test_words(inside, self.variables, patterns=False)
        return self._call(command, words, name)

    def _assign(self, assignment: Assignment) -> None:
        name, value = assignment.name, assignment.value
        old = self.variables.values.get(name)
        new: ShellValue | list[ShellValue]
        if isinstance(value, ShellWord):
            text = expand_value(value, self.variables)
            new = text
            if assignment.index:
                keyed = value_of(f"[{assignment.index}]=", *text.pieces)
                new = [*(old if isinstance(old, list) else ()), keyed]
            elif assignment.append and isinstance(old, list):
                first = value_of(*(old[0].pieces if old else ()), *text.pieces)
                new = [first, *old[1:]]
            elif assignment.append and isinstance(old, ShellValue):
                new = value_of(*old.pieces, *text.pieces)
        else:
            new = [each for word in value for each in expand_fields(word, self.variables)]
            if assignment.append and old is not None:
                new = [*(old if isinstance(old, list) else [old]), *new]
        self.variables.assign(name, new)

    def _call(self, command: SimpleCommand, words: list[ShellValue], name: str | None) -> ConditionResult:
        if name in ("exit", "return", "break", "continue"):
            raise _Exit(name)
        if name in ("true", "false", ":"):
            return _FALSE if name == "false" else _TRUE
        if name in ("source", ".") and len(words) > 1:
            self.sourced.append(words[1].shown)
        elif name == "shift":
            count = int(words[1].text or 1) if len(words) > 1 and (words[1].text or "").isdigit() else 1
            if self.variables.positional is not None:
                self.variables.positional = self.variables.positional[min(count, 99) :]
        elif name == "set" and len(words) > 1 and words[1].text == "--":
            self.variables.positional = words[2:]
        elif name in ("read", "mapfile", "readarray", "getopts"):
            for word in words[1:]:
                if word.text and re.fullmatch(r"[A-Za-z_]\w*", word.text):
                    self.variables.assign(word.text, value_of(missing(word.text)))
        elif name == "eval":
            self._inner(" ".join(each.shown for each in words[1:]), command.line, words[1:])
        elif name in self.functions:
            return self._function(name, words)
        else:
            self._record(command, words)
        return _UNKNOWN

    def _function(self, name: str, words: list[ShellValue]) -> ConditionResult:
        if self.depth >= _MOST_DEPTH:
            return _UNKNOWN
        self.depth += 1
        outer, self.variables.positional = self.variables.positional, words[1:]
        try:
            return self.statements(self.functions[name])
        except _Exit as end:
            if end.kind != "return":
                raise
            return _UNKNOWN
        finally:
            self.variables.positional = outer
            self.depth -= 1

    def _record(self, command: SimpleCommand, words: list[ShellValue]) -> None:
        """Note a call, or what it calls in turn where a word of it is a script of its own."""
        for index, word in enumerate(words):
            text = word.shown
            shell = index > 1 and words[index - 1].text in ("-c", "-lc") and len(text.split()) > 1
            if shell or (
                len(text.split()) > 3 and " --" in text and ".py" in text and words[0].text != "echo"
            ):
                self._inner(text, command.line, [word])
                return
        self.commands.append(
            CalledCommand(
                line=command.line, words=tuple(words), under=tuple(self.under),
                environment=tuple(self._own_environment(command)),
            )
        )  # fmt: skip

    def _own_environment(self, command: SimpleCommand) -> Iterator[tuple[str, str]]:
        """The variables in front of a command, of which the text settles the value."""
        for each in command.assignments:
            if isinstance(each.value, ShellWord):
                text = expand_value(each.value, self.variables).text
                if text is not None:
                    yield each.name, text

    def _inner(self, text: str, line: int, words: Sequence[ShellValue]) -> None:
        """Run a text that is a script."""
        if self.depth >= _MOST_DEPTH:
            return
        if any(word.unsettled for word in words):
            text = self._with_names(words)
        self.depth += 1
        try:
            self.statements(parse_script(text, self.source, line))
        finally:
            self.depth -= 1

    def _with_names(self, words: Sequence[ShellValue]) -> str:
        """The text of words, with what is unsettled kept under names of its own."""
        found = []
        for word in words:
            for piece in word.pieces:
                if isinstance(piece, str):
                    found.append(piece)
                    continue
                name = f"_unsettled_{len(self.variables.values)}"
                self.variables.values[name] = value_of(piece)
                found.append(f"${{{name}}}")
            found.append(" ")
        return "".join(found)
