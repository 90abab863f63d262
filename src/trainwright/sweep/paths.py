"""Fields of nested values by dotted text: `cluster.device.memory.0.capacity`, `model.layers`.

A step is a field of a dataclass (its unit may be left out: `capacity` is `capacity_bytes`, `bandwidth` is
`bytes_per_s`), a key of a mapping, or an item of a tuple by number or name. A field that a dataclass lacks is
looked for inside the dataclasses it holds: `cluster.levels` is `cluster.network.levels`. Nothing here knows
which fields there are, so a new field can be swept on the day it is added.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from trainwright.errors import BadInput, UnknownName
from trainwright.estimate.fleet import altered

Path = tuple[str | int, ...]

# What a name may end in, and the unit of what it names.
_UNITS = {
    "bytes_per_s": "bytes/s", "flops_per_s": "flops/s", "_bytes": "bytes", "_s": "s", "_w": "W",
    "price_per_hour": "$/h",
}  # fmt: skip
_SPOKEN = {"bandwidth": "bytes_per_s", "price": "price_per_hour", "peak": "peak_flops_per_s"}
_DEPTH = 2  # of dataclasses inside dataclasses that are searched for a field


def resolve(root: Any, text: str) -> Path:
    """The path that a text means, from `root`; an error names the nearest field."""
    here, path = root, list[str | int]()
    for word in text.split("."):
        steps = _steps(here, word)
        if steps is None:
            raise UnknownName(f'field "{text}": part', word, _known(here))
        path += steps
        here = value_at(here, tuple(steps))
    return tuple(path)


def value_at(root: Any, path: Path) -> Any:
    """What is at a path."""
    for step in path:
        root = getattr(root, str(step)) if is_dataclass(root) else root[step]
    return root


def with_value(root: Any, path: Path, value: Any) -> Any:
    """A copy of `root` with another value at a path; checked as it is built, unless the value is an array."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(root, Mapping):
        return {**root, step: with_value(root.get(step), rest, value)}
    if isinstance(root, tuple):
        at = int(step)
        return (*root[:at], with_value(root[at], rest, value), *root[at + 1 :])
    changes = {str(step): with_value(getattr(root, str(step)), rest, value)}
    return altered(root, changes) if _has_array(value) else replace(root, **changes)


def unit_of(path: Path) -> str:
    """The unit of a quantity, read off the name of its field (of a mapping's item, off the mapping's)."""
    for step in reversed(path):
        for ending, unit in _UNITS.items():
            if isinstance(step, str) and step.endswith(ending):
                return unit
    return ""


def _steps(here: Any, word: str) -> list[str | int] | None:
    if isinstance(here, Mapping):
        return [word] if word in here else None
    if isinstance(here, tuple):
        if word.isdigit():
            return [int(word)] if int(word) < len(here) else None
        named = [at for at, each in enumerate(here) if getattr(each, "name", None) == word]
        return list[str | int](named[:1]) or None
    if not is_dataclass(here):
        return None
    found = [path for depth in range(_DEPTH + 1) for path in _inside(here, word, depth)]
    nearest = [path for path in found if len(path) == len(found[0])]
    if len(nearest) > 1:
        raise BadInput("field", word, "is in several parts: " + ", ".join(map(_text, nearest)), "say which")
    return nearest[0] if nearest else None


def _inside(here: Any, word: str, depth: int) -> Iterator[list[str | int]]:
    """Paths to a field of this name, so many dataclasses down."""
    if depth == 0:
        for name in _own(here, word):
            yield [name]
        return
    for field in fields(here):
        value = getattr(here, field.name)
        if is_dataclass(value):
            yield from ([field.name, *path] for path in _inside(value, word, depth - 1))


def _own(here: Any, word: str) -> list[str]:
    names = [field.name for field in fields(here)]
    for certain in (word, _SPOKEN.get(word, word)):
        if certain in names:
            return [certain]
    meant = {word + ending for ending in _UNITS if ending.startswith("_")}
    meant |= {f"{word}_{ending}" for ending in _UNITS if not ending.startswith("_")}
    return [name for name in names if name in meant]


def _known(here: Any) -> list[str]:
    if isinstance(here, Mapping):
        return [str(key) for key in here]
    if isinstance(here, tuple):
        return [*map(str, range(len(here))), *(each.name for each in here if hasattr(each, "name"))]
    return [field.name for field in fields(here)] if is_dataclass(here) else []


def _has_array(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_array, value.values()))
    return isinstance(value, np.ndarray)


def _text(path: list[str | int]) -> str:
    return ".".join(map(str, path))
