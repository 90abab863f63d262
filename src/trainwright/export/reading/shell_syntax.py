"""The parts of a bash script: words with their expansions, and the statements they form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Characters that stand for themselves."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """`$name` or `${name…}`: `operator` follows the name, such as `:-`, and `argument` follows that.

    `index` is `@`, `*` or what stands in brackets; `prefix` is `#` (length) or `!` (indirection).
    """

    name: str
    operator: str = ""
    argument: "ShellWord | None" = None
    index: str = ""
    prefix: str = ""
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """`$((…))`."""

    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """The output of a command, which is not run."""

    text: str
    quoted: bool = False


WordPart = Literal | Expansion | Arithmetic | Substitution


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """A word before its expansions."""

    parts: tuple[WordPart, ...]

    @property
    def plain(self) -> str | None:
        """Its text if it has no expansions and no quotes: the form of keywords."""
        if all(isinstance(each, Literal) and not each.quoted for each in self.parts):
            return "".join(each.text for each in self.parts if isinstance(each, Literal))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`name=value`, `name+=value` or `name=(words)`."""

    name: str
    value: "ShellWord | tuple[ShellWord, ...]"
    append: bool = False
    index: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """Assignments, then words; `document` is the text of a here-document and `target` the file it goes to."""

    line: int
    assignments: tuple[Assignment, ...] = ()
    words: tuple[ShellWord, ...] = ()
    document: "ShellWord | None" = None
    target: "ShellWord | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTest:
    """`[[ … ]]` (words) or `(( … ))` (arithmetic)."""

    line: int
    words: tuple[ShellWord, ...] = ()
    arithmetic: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Commands joined by `|`; `negated` with `!` in front."""

    commands: "tuple[ShellStatement, ...]"
    negated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AndOrList:
    """Pipelines joined by `&&` and `||`."""

    first: "ShellStatement"
    others: "tuple[tuple[str, ShellStatement], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class IfStatement:
    """Conditions with what they guard; the last has no condition if it is an `else`."""

    line: int
    branches: "tuple[tuple[tuple[ShellStatement, ...] | None, tuple[ShellStatement, ...]], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStatement:
    """A word, and bodies by patterns."""

    line: int
    word: ShellWord
    arms: "tuple[tuple[tuple[ShellWord, ...], tuple[ShellStatement, ...]], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForLoop:
    """A body for each of some words."""

    line: int
    name: str
    words: tuple[ShellWord, ...]
    body: "tuple[ShellStatement, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhileLoop:
    """A body as long as a condition holds."""

    line: int
    condition: "tuple[ShellStatement, ...]"
    body: "tuple[ShellStatement, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellGroup:
    """`{ … }`, or `( … )`."""

    body: "tuple[ShellStatement, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellFunction:
    """The definition of a function."""

    name: str
    body: "tuple[ShellStatement, ...]"


ShellStatement = (
    SimpleCommand
    | ShellTest
    | Pipeline
    | AndOrList
    | IfStatement
    | CaseStatement
    | ForLoop
    | WhileLoop
    | ShellGroup
    | ShellFunction
)
