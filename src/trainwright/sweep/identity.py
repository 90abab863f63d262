"""What a dataset was made from, in one word: the sweep with all that it names, and the program."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from trainwright import __version__
from trainwright.sweep.types import Sweep

_PACKAGE = Path(__file__).parents[1]
# What results are made by; commands, reports, runs and studies may change without changing them.
_MAKERS = ("cluster", "cost", "economics", "estimate", "model", "plan", "search", "sweep", "units.py")


def sweep_digest(sweep: Sweep) -> str:
    """A digest of everything that a sweep says, the models and clusters that it names included."""
    whole = hashlib.sha256()
    for piece in _pieces(sweep):
        whole.update(f"{len(piece)}:".encode() + piece)
    return whole.hexdigest()


@cache
def program_digest() -> str:
    """A digest of the code and constants that results are made by."""
    whole = hashlib.sha256()
    for path in sorted(_sources()):
        whole.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


@cache
def versions() -> Mapping[str, str]:
    """The versions that the bytes of a dataset depend on."""
    return {"trainwright": __version__, "numpy": np.__version__, "pyarrow": version("pyarrow")}


def _sources() -> Iterator[Path]:
    for name in _MAKERS:
        yield from [_PACKAGE / name] if name.endswith(".py") else (_PACKAGE / name).rglob("*.py")
    yield _PACKAGE / "catalog" / "calibration.toml"


def _pieces(value: Any) -> Iterator[bytes]:
    """A value as bytes, part by part, always in the same order."""
    if is_dataclass(value) and not isinstance(value, type):
        yield type(value).__name__.encode()
        for field in fields(value):
            yield field.name.encode()
            yield from _pieces(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key in value:
            yield str(key).encode()
            yield from _pieces(value[key])
    elif isinstance(value, (tuple, list)):
        yield str(len(value)).encode()
        for each in value:
            yield from _pieces(each)
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    else:
        yield repr(value).encode()
