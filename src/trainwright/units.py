"""Quantities as text with units at the edges, SI base units inside."""

import math
import re
from numbers import Real
from typing import TypeGuard

from trainwright.errors import BadInput

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}

# The base unit of each kind of quantity, and every suffix that a text may carry.
_SUFFIXES: dict[str, dict[str, float]] = {
    "bytes": {p + "B": f for p, f in (_DECIMAL | _BINARY).items()},
    "bytes/s": {p + "B/s": f for p, f in (_DECIMAL | _BINARY).items()}
    | {p + s: f / 8 for p, f in _DECIMAL.items() for s in ("b/s", "bps", "bit/s")},
    "flops/s": {p + s: f for p, f in _DECIMAL.items() for s in ("FLOP/s", "FLOPS")},
    "s": {p + "s": f for p, f in ({"": 1.0} | _SMALL).items()} | {"min": 60.0, "h": 3600.0, "d": 86400.0},
    "W": {p + "W": f for p, f in _DECIMAL.items()},
    "$/h": {"$/h": 1.0, "USD/h": 1.0},
    "$": {p + s: f for p, f in _DECIMAL.items() for s in ("$", "USD")},
    "$/kWh": {"$/kWh": 1.0, "USD/kWh": 1.0, "ct/kWh": 0.01},
    "kg/kWh": {"kg/kWh": 1.0, "g/kWh": 1e-3},
    "years": {"years": 1.0, "year": 1.0, "y": 1.0, "months": 1.0 / 12.0},
    "/day": {"/day": 1.0, "/week": 1.0 / 7.0},
    "/device-day": {"/device-day": 1.0, "/device-year": 1.0 / 365.25},
    "%": {"%": 0.01},
    "tokens": {p + s: f for p, f in (_DECIMAL | {"B": 1e9}).items() for s in ("", "tokens", " tokens")},
}
_EXAMPLE = {
    "bytes": "80 GiB",
    "bytes/s": "3.35 TB/s",
    "flops/s": "989 TFLOP/s",
    "s": "5 us",
    "W": "700 W",
    "$/h": "2.50 $/h",
    "$": "37500 $",
    "$/kWh": "0.08 $/kWh",
    "kg/kWh": "400 g/kWh",
    "years": "4 years",
    "/day": "0.9 /day",
    "/device-day": "4.7e-4 /device-day",
    "%": "3%",
    "tokens": "15T",
}
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)\s*(.*?)\s*$", re.DOTALL)
WHOLE = re.compile(r"[0-9]{1,12}")  # digits alone, and not too many


def parse_quantity(text: object, unit: str, thing: str = "quantity") -> float:
    """The value of `text` in base `unit`; a bare number is an error where a unit is needed."""
    remedy = f'write it like "{_EXAMPLE[unit]}"'
    match = _NUMBER.match(text) if isinstance(text, str) else None
    if match is None:
        raise BadInput(thing, text, f"not a quantity in {unit}", remedy)
    number, suffix = match.groups()
    factor = _SUFFIXES[unit].get(suffix)
    if factor is None:
        problem = "has no unit" if not suffix else f"unit {suffix!r} is not one of {unit}"
        raise BadInput(thing, text, problem, remedy)
    value = float(number) * factor
    if value < 0:
        raise BadInput(thing, text, "is negative", remedy)
    if not math.isfinite(value):
        raise BadInput(thing, text, "is not finite", remedy)
    return value


def parse_amount(value: object, unit: str, thing: str) -> float:
    """The value in base `unit` of text with a unit, or of a number, which is in that unit already."""
    if not _is_number(value):
        return parse_quantity(value, unit, thing)
    if value < 0:
        raise BadInput(thing, value, "is negative", f'write it like "{_EXAMPLE[unit]}"')
    return float(value)


def parse_whole(value: object, thing: str, *, most: int | None = None) -> int:
    """The whole number above zero that `value` is, or writes in digits; `most` at most."""
    text = str(int(value)) if _is_number(value) and value == int(value) else value
    if not isinstance(text, str) or not WHOLE.fullmatch(text) or int(text) == 0:
        raise BadInput(thing, value, "is not a whole number above zero", "write it like 8")
    if most is not None and int(text) > most:
        raise BadInput(thing, value, f"is more than {most:,}", "ask for less")
    return int(text)


def parse_number(value: object, thing: str, example: str) -> float:
    """The plain number above zero that `value` is or writes; for what has no unit, or has it in its name."""
    match = _NUMBER.match(str(value)) if isinstance(value, str) or _is_number(value) else None
    if match is None or match[2]:
        raise BadInput(thing, value, "is not a number", f"write it like {example}")
    number = float(match[1])
    if not 0 < number < math.inf:
        raise BadInput(thing, value, "is not above zero and finite", f"write it like {example}")
    return number


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number, of numpy too."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def render_bytes(value: float) -> str:
    """Bytes in binary units: 81920 MiB is `80.0 GiB`."""
    for prefix, factor in (("Ti", 2.0**40), ("Gi", 2.0**30), ("Mi", 2.0**20), ("Ki", 2.0**10)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {prefix}B"
    return f"{value:.0f} B"


_LARGE = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))  # of counts and dollars


def render_si(value: float, unit: str) -> str:
    """A value with three digits and a decimal prefix: 3.35e12 B/s is `3.35 TB/s`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    for prefix, factor in reversed(list(_DECIMAL.items())):
        if abs(value) >= factor and prefix != "K":
            return f"{value / factor:.3g} {prefix}{unit}"
    for prefix, factor in _SMALL.items():
        if abs(value) >= factor and prefix != "µ":
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def render_duration(value_s: float) -> str:
    """A duration in the unit people would say it in."""
    for limit, factor, unit in (
        (1e-3, 1e-6, "us"),
        (1.0, 1e-3, "ms"),
        (120.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
    ):
        if value_s < limit:
            return f"{value_s / factor:.3g} {unit}"
    return f"{value_s / 3600:.3g} h" if value_s < 172800 else f"{value_s / 86400:.3g} days"


def render_count(value: float) -> str:
    """A number of things with three digits and a letter: 15e12 is `15T`."""
    for letter, factor in _LARGE:
        if factor <= abs(value) < math.inf:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def render_dollars(value: float) -> str:
    """An amount of money with three digits: 12,030,263 is `$12.0M`."""
    for letter, factor in _LARGE:
        if factor <= abs(value) < math.inf:
            return f"${value / factor:#.3g}{letter}".replace(f".{letter}", letter)
    return f"${value:,.3g}"
