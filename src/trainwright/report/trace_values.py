"""Typed reading of a trace's events: names are texts, times and numbers are finite and within reason."""

import gzip
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from trainwright.checksum import Seal, check_seal
from trainwright.errors import BadInput

_MOST_US = 1e17  # three thousand years, in what traces count
MOST_DEVICES = 10_000_000
MOST_WHOLE = 2**31 - 1
_MOST_ELEMENTS = 2**62


class OddEvent(ValueError):
    """A value of a trace that cannot be what its place says."""


def load_tree(path: Path, remedy: str) -> tuple[object, Seal]:
    """The JSON of a trace, compressed or not, and whether it has a checksum; raises if that differs."""
    try:
        content = path.read_bytes()
        seal = check_seal(content)
        if seal is Seal.BROKEN:
            rule = "was edited or damaged since it was written: its checksum differs"
            again = 'write it again, or remove its last key, "checksum", to use it as it is'
            raise BadInput("trace", str(path), rule, again)
        return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content), seal
    except OSError as error:
        reason = error.strerror or "is damaged"
        raise BadInput("trace", str(path), f"cannot be read ({reason})", "check the path") from None
    except (zlib.error, EOFError):
        raise BadInput("trace", str(path), "cannot be read (is damaged)", "write it again") from None
    except (ValueError, RecursionError):
        raise BadInput("trace", str(path), "is not JSON", remedy) from None


def text(event: Mapping[str, Any], key: str, default: str | None = None) -> str:
    """A name; numbers and the like are none."""
    value = event.get(key, default)
    if not isinstance(value, str):
        raise OddEvent(f"{key} {_shown(value)} is not text")
    return value


def number(event: Mapping[str, Any], key: str, *, least: float = -_MOST_US) -> float:
    """A finite number that a clock of microseconds can show."""
    value = event.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OddEvent(f"{key} {_shown(value)} is not a number")
    if not least <= value <= _MOST_US:  # which NaN is not
        raise OddEvent(f"{key} {_shown(value)} is not from {least:g} to {_MOST_US:g}")
    return float(value)


def whole(value: object, what: str, *, least: int = 0, most: int = MOST_WHOLE) -> int:
    """A whole number in a range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OddEvent(f"{what} {_shown(value)} is not a whole number from {least} to {most:,}")
    return value


def table(value: object, what: str) -> Mapping[str, Any]:
    """Values by name."""
    if not isinstance(value, Mapping):
        raise OddEvent(f"{what} {_shown(value)} is not an object")
    return value


def listed(value: object, what: str) -> list[Any]:
    """A list."""
    if not isinstance(value, list):
        raise OddEvent(f"{what} {_shown(value)} is not a list")
    return value


def identity(value: object) -> object:
    """What events are told apart by: a number or a text; all that is neither counts as the same."""
    return value if isinstance(value, str | int | float) else None


def dims(value: object) -> list[list[int]]:
    """Sizes of operands; of one whose sizes are not known, none."""
    known = value if isinstance(value, list) else []
    return [each if _are_sizes(each) else [] for each in known]


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or any(type(each) is not int or each < 0 for each in value):
        return False
    return max(value, default=0) <= _MOST_ELEMENTS and math.prod(value) <= _MOST_ELEMENTS


def element_count(value: object) -> int:
    """A count of elements or ranks, which profilers also write as text; 0 if it is none."""
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < 20 else 0
    fine = isinstance(value, int | float) and 0 <= value <= _MOST_ELEMENTS
    return int(value) if fine else 0  # type: ignore[call-overload]


def _shown(value: object) -> str:
    try:
        return repr(value)[:40]
    except ValueError:  # Python writes no integers of thousands of digits
        return "of thousands of digits"
