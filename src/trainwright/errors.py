"""What Trainwright tells a user whose input it cannot accept.

TrainwrightError            printed as one line, exit code 1
├── BadInput                a value breaks a rule
│   └── UnknownName         a name that no entry has; suggests the nearest
└── InfeasiblePlan          nothing fits, exit code 2; carries the nearest miss
"""

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 200  # characters of a value that are repeated to the user


class TrainwrightError(Exception):
    """An error that is the user's to fix; its text is the whole message, on one line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class BadInput(TrainwrightError):
    """A value that breaks a rule: what it is, what it was, the rule, what to do."""

    def __init__(self, thing: str, value: object, rule: str, remedy: str) -> None:
        self.thing, self.value, self.rule, self.remedy = thing, value, rule, remedy
        shown = thing if value == "" else f"{thing} {_quoted(value)}"
        super().__init__(f"{shown}: {rule}; {remedy}")


class UnknownName(BadInput):
    """A name that is not among the known ones."""

    def __init__(self, thing: str, value: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(value.lower(), names, n=1, cutoff=0.4)
        remedy = f'did you mean "{near[0]}"?' if near else "known: " + ", ".join(names[:12])
        super().__init__(thing, value, "no such name", remedy)


class InfeasiblePlan(TrainwrightError):
    """Nothing fits: the message is the nearest miss and what would make it fit.

    As data, None where it is not known: the plan that comes nearest, the bytes that it needs on the device
    with the least room, what that device has, and how many devices would do.
    """

    def __init__(
        self,
        message: str,
        *,
        nearest: str | None = None,
        needed_bytes: float | None = None,
        capacity_bytes: float | None = None,
        devices_needed: int | None = None,
    ) -> None:
        self.nearest, self.devices_needed = nearest, devices_needed
        self.needed_bytes, self.capacity_bytes = needed_bytes, capacity_bytes
        super().__init__(message)


def one_line(text: str) -> str:
    """A text with its line ends and other control characters written out, as in a Python literal."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text
    )


def _quoted(value: object) -> str:
    text = _written(value)
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    return f'"{text}"' if isinstance(value, str) else text


def _written(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no integers of thousands of digits
        return "a number of thousands of digits"
