"""Values of a script's variables, of which some depend on what the text does not say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MOST_CHARACTERS = 20_000  # of a value
_MOST_DEPTH = 6  # of conditions inside each other whose options are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """A part of a value that the text does not settle.

    `names` are the variables that would settle it; `options` the words that it may be, if they are known.
    """

    reason: str
    names: tuple[str, ...] = ()
    options: "tuple[tuple[ShellValue, ...], ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellValue:
    """A text in pieces: known characters, and what is unsettled between them."""

    pieces: tuple[str | Unsettled, ...] = field(default=())

    @property
    def text(self) -> str | None:
        """The characters, if all are known."""
        if any(isinstance(each, Unsettled) for each in self.pieces):
            return None
        return "".join(each for each in self.pieces if isinstance(each, str))

    @property
    def unsettled(self) -> Unsettled | None:
        """The first part that is unsettled."""
        return next((each for each in self.pieces if isinstance(each, Unsettled)), None)

    @property
    def shown(self) -> str:
        """The characters, with an ellipsis for what is not known."""
        return "".join(each if isinstance(each, str) else "…" for each in self.pieces)


def value_of(*pieces: str | Unsettled) -> ShellValue:
    """A value of some pieces, with neighbouring characters together."""
    merged: list[str | Unsettled] = []
    for each in pieces:
        if isinstance(each, str) and merged and isinstance(merged[-1], str):
            merged[-1] += each
        elif each != "":
            merged.append(each)
    return ShellValue(pieces=tuple(merged))


def joined(values: Iterable[ShellValue], separator: str = " ") -> ShellValue:
    """Values one after another."""
    pieces: list[str | Unsettled] = []
    for index, each in enumerate(values):
        pieces += [separator, *each.pieces] if index else [*each.pieces]
    return value_of(*pieces)


def split_words(value: ShellValue) -> list[ShellValue]:
    """The words of a value that is not quoted."""
    words: list[list[str | Unsettled]] = []
    open_word = False
    for piece in value.pieces:
        if isinstance(piece, Unsettled):
            if not open_word:
                words.append([])
            words[-1].append(piece)
            open_word = True
            continue
        for index, part in enumerate(_fields(piece)):
            if index:
                open_word = False
            if part:
                if not open_word:
                    words.append([])
                words[-1].append(part)
                open_word = True
    return [value_of(*each) for each in words]


def _fields(text: str) -> list[str]:
    """A text cut at its blanks; blanks at an end leave an empty text there."""
    found = text.split()
    if not found:
        return ["", ""] if text else [""]
    start = [""] if text[0].isspace() else []
    end = [""] if text[-1].isspace() else []
    return [*start, *found, *end]


def either(values: Sequence[ShellValue], reason: str, names: tuple[str, ...]) -> ShellValue:
    """A value that is one of several: what they begin with alike, then what is unsettled."""
    if all(each == values[0] for each in values):
        return values[0]
    count = 0
    while all(len(each.pieces) > count and each.pieces[count] == values[0].pieces[count] for each in values):
        count += 1
    rests = [each.pieces[count:] for each in values]
    texts = [rest[0] if rest and isinstance(rest[0], str) else "" for rest in rests]
    prefix = _whole_words(texts)
    options = tuple(
        tuple(split_words(value_of(text[len(prefix) :], *rest[bool(text) :])))
        for text, rest in zip(texts, rests, strict=True)
    )
    apart = bool(count) and all(
        not rest or text[:1].isspace() for text, rest in zip(texts, rests, strict=True)
    )
    gap = " " if (prefix and not prefix[-1].isspace()) or (not prefix and apart) else ""
    return value_of(*values[0].pieces[:count], prefix + gap, _open(reason, names, options))


def _open(reason: str, names: tuple[str, ...], options: tuple[tuple[ShellValue, ...], ...]) -> Unsettled:
    """A part that is one of several; of deeply nested ones only that they may be arguments is kept."""
    if max((_depth(word) for option in options for word in option), default=0) >= _MOST_DEPTH:
        options = ((value_of("--…"),), ())
    return Unsettled(reason=reason, names=names, options=options)


def _depth(value: ShellValue) -> int:
    depths = [
        1 + max((_depth(word) for option in piece.options for word in option), default=0)
        for piece in value.pieces
        if isinstance(piece, Unsettled)
    ]
    return max(depths, default=0)


def _whole_words(texts: Sequence[str]) -> str:
    """What texts begin with alike, up to the end of a word in all of them."""
    size = 0
    for column in zip(*texts, strict=False):
        if len({*column}) > 1:
            break
        size += 1
    while size and not all(_is_end(text, size) for text in texts):
        size -= 1
    return texts[0][:size]


def _is_end(text: str, at: int) -> bool:
    return at == len(text) or text[at].isspace() or text[at - 1].isspace()


def either_list(
    lists: Sequence[Sequence[ShellValue]], reason: str, names: tuple[str, ...]
) -> list[ShellValue]:
    """An array that is one of several: the elements they begin with alike, then one that is unsettled."""
    count = 0
    while all(len(each) > count and each[count] == lists[0][count] for each in lists):
        count += 1
    rests = tuple(tuple(each[count:]) for each in lists)
    if not any(rests):
        return [*lists[0]]
    return [*lists[0][:count], value_of(_open(reason, names, rests))]
