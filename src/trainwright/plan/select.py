"""Choosing operators by name: blocks, ranges of layers, operators, regions and kinds."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Protocol

from trainwright.errors import BadInput
from trainwright.model.graph import Op

NOTHING = "-"  # the pattern of a stage without operators
_RANGE = re.compile(r"(?P<name>.+)\.(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})$")


class Named(Protocol):
    """An operator of a model with its place in it."""

    @property
    def block(self) -> str: ...
    @property
    def op(self) -> Op: ...


def select(instances: Sequence[Named], pattern: str) -> list[int]:
    """Indices of the operators that a pattern chooses; choosing nothing is an error.

    A pattern is one or more terms with commas: `layer.0-11` (blocks), `head`, `*/norm*` (operators of any
    block), `layer.3/attention.*`, `@ffn` (a region), `*/%matmul` (a kind).
    """
    if pattern == NOTHING:
        return []
    found: set[int] = set()
    for term in pattern.split(","):
        block, op = _parse_term(term)
        chosen = {name for name in {each.block for each in instances} if block(name)}
        hits = [i for i, each in enumerate(instances) if each.block in chosen and op(each.op)]
        if not hits:
            blocks = sorted({each.block.partition(".")[0] for each in instances})
            raise BadInput(
                f'operators "{pattern}"', term, "chooses nothing in this model",
                f"blocks are {', '.join(blocks)}; write layer.0-3, */norm1, @ffn or *",
            )  # fmt: skip
        found.update(hits)
    return sorted(found)


@lru_cache(maxsize=1024)
def _parse_term(term: str) -> tuple[Callable[[str], bool], Callable[[Op], bool]]:
    if not term or term.count("/") > 1:
        raise BadInput("operators", term, "is not BLOCK/OP", "write layer.0-3, */norm1, @ffn or *")
    if term.startswith(("@", "%")):
        term = f"*/{term}"
    block, _, op = term.partition("/")
    return _block_test(block), _op_test(op or "*")


def _block_test(text: str) -> Callable[[str], bool]:
    match = _RANGE.match(text)
    if match is None:
        return lambda name: fnmatchcase(name, text)
    first, last = int(match["first"]), int(match["last"])
    if first > last:
        raise BadInput("layers", text, "the range is empty", f"write {match['name']}.{last}-{first}")
    return partial(_is_numbered, match["name"], first, last)


def _is_numbered(name: str, first: int, last: int, block: str) -> bool:
    """Whether a block is one of a range of numbered ones; the range may be far longer than the model."""
    found, _, number = block.rpartition(".")
    return found == name and number.isdecimal() and first <= int(number) <= last


def _op_test(text: str) -> Callable[[Op], bool]:
    if text.startswith("@"):
        return lambda op: op.region == text[1:]
    if text.startswith("%"):
        return lambda op: op.kind == text[1:]
    return lambda op: fnmatchcase(op.name, text)


def layer_range(layers: Sequence[int], name: str = "layer") -> str:
    """The pattern of numbered blocks, runs joined: `layer.0-5,layer.8`."""
    runs: list[list[int]] = []
    for number in layers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{name}.{a}-{b}" if a < b else f"{name}.{a}" for a, b in runs)
