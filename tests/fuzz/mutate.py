"""Inputs with faults: bytes, words and values of a valid one replaced, dropped, doubled or nested."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

# Values that readers must refuse or understand, whatever the field: as JSON, and as words of other texts.
_VALUES: tuple[Any, ...] = (
    0,
    -1,
    1,
    2,
    3,
    4,
    16,
    64,
    1e40,
    10**9,
    10**12,
    10**40,
    2**63,
    -(10**9),
    0.5,
    -0.0,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "auto",
    "none",
    "8",
    "-1",
    "1e40",
    "10 GB/s",
    "1e300 GiB",
    "\u0000",
    "\ud800",
    "汉字",
    "a" * 3000,
    None,
    True,
    False,
    [],
    {},
    [[]],
    [1, "2", None],
    {"a": 1},
    {"": []},
)
_WORDS = (
    "0",
    "-1",
    "1",
    "2",
    "3",
    "4",
    "16",
    "64",
    "1e40",
    "1000000000",
    "1000000000000",
    "9" * 41,
    "9" * 5000,
    "-1e9",
    "0.5",
    "1e308",
    "nan",
    "inf",
    "NaN",
    "null",
    "none",
    "true",
    "false",
    "[]",
    "{}",
    "''",
    '""',
    '"x"',
    '"10 GB/s"',
    '"1e300 GiB"',
    "auto",
    "[1, 2]",
    "[[[[]]]]",
    "{a = 1}",
    "\\",
    "$",
    "${X}",
    "$((2**40))",
    "=",
    "(",
    ")",
    "--",
    "\x00",
    "汉字",
    "1979-05-27",
    "0x10",
    "1_000",
    "+5",
    "1e5",
    "*",
    "a" * 3000,
)
_TOKEN = re.compile(rb"\"[^\"\n]{0,200}\"|[-+]?\d[\d_.eE+-]*|[A-Za-z][\w.:-]*")
_NUMBER = re.compile(rb"[-+]?\d[\d_.eE+-]*")


def mutate(content: bytes, kind: str, chance: random.Random) -> bytes:
    """A faulty version of a valid input; of JSON mostly one whose values are wrong, not its grammar."""
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3, 5))):
        if kind == "json" and chance.random() < 0.7:
            content = _mutate_tree(content, chance)
        else:
            by_bytes = kind == "binary" or chance.random() < 0.25
            content = chance.choice(_BY_BYTES if by_bytes else _BY_WORDS)(content, chance)
    return content


def _mutate_tree(content: bytes, chance: random.Random) -> bytes:
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return _flip(content, chance)
    spots = list(_spots(tree))
    if not spots:
        return _flip(content, chance)
    holder, key = chance.choice(spots)
    chance.choice((_replace, _replace, _replace, _drop, _double, _wrap, _move))(holder, key, chance)
    try:
        return json.dumps(tree).encode(errors="surrogatepass")
    except (ValueError, RecursionError):  # nested in itself
        return content


def _spots(tree: Any) -> Any:
    """Every holder and key of a tree."""
    pending = [tree]
    while pending:
        holder = pending.pop()
        for key in (
            range(len(holder))
            if isinstance(holder, list)
            else list(holder)
            if isinstance(holder, dict)
            else ()
        ):
            yield holder, key
            pending.append(holder[key])


def _replace(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(_VALUES)


def _drop(holder: Any, key: Any, chance: random.Random) -> None:
    del holder[key]


def _double(holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[chance.choice((f"{key}2", key.upper(), ""))] = holder[key]


def _wrap(holder: Any, key: Any, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 2, 60, 900))):
        holder[key] = [holder[key]] if chance.random() < 0.7 else {"a": holder[key]}


def _move(holder: Any, key: Any, chance: random.Random) -> None:
    other = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    holder[key], holder[other] = holder[other], holder[key]


def _word(content: bytes, chance: random.Random) -> bytes:
    return _at_match(content, chance, _TOKEN)


def _number(content: bytes, chance: random.Random) -> bytes:
    return _at_match(content, chance, _NUMBER)


def _at_match(content: bytes, chance: random.Random, pattern: re.Pattern[bytes]) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return _flip(content, chance)
    each = chance.choice(found)
    return content[: each.start()] + chance.choice(_WORDS).encode() + content[each.end() :]


def _exchange_words(content: bytes, chance: random.Random) -> bytes:
    found = list(_TOKEN.finditer(content))
    if len(found) < 2:
        return _flip(content, chance)
    one, two = sorted(chance.sample(found, 2), key=lambda each: each.start())
    middle = content[one.end() : two.start()]
    return content[: one.start()] + two[0] + middle + one[0] + content[two.end() :]


def _line(content: bytes, chance: random.Random) -> bytes:
    lines = content.split(b"\n")
    at = chance.randrange(len(lines))
    put = chance.choice(([], [lines[at]] * 2, [lines[chance.randrange(len(lines))]]))
    return b"\n".join([*lines[:at], *put, *lines[at + 1 :]])


def _flip(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return bytes([chance.randrange(256)])
    at = chance.randrange(len(content))
    return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _drop_slice(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return content[:at] + content[at + chance.randrange(1, 40) :]


def _double_slice(content: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(content) + 1), chance.choice((1, 8, 40, 400))
    return content[:at] + content[at : at + size] * chance.choice((2, 2, 3, 200)) + content[at + size :]


def _nest(content: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(content) + 1)
    return (
        content[:at]
        + chance.choice((b"[", b"{", b"(", b'{"a":', b"[[")) * chance.choice((1, 100, 20_000))
        + content[at:]
    )


_BY_WORDS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _word,
    _word,
    _number,
    _number,
    _number,
    _exchange_words,
    _line,
)
_BY_BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _drop_slice,
    _double_slice,
    _nest,
)
