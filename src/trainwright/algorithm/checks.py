"""Rules for the hyperparameters of algorithms."""

from math import isfinite

from trainwright.errors import BadInput

_MOST_EVERY = 1_000_000  # no run is as long


def check_whole(name: str, value: int, least: int) -> None:
    """Raise unless a value is a whole number of at least so much."""
    if not isinstance(value, int) or value < least:
        raise BadInput(f"algorithm's {name}", value, f"is no whole number of {least} or more", "correct it")


def check_every(value: int) -> None:
    """Raise unless rounds have a sensible count of steps."""
    check_whole("every", value, 1)
    if value > _MOST_EVERY:
        rule = f"is more than the {_MOST_EVERY:,} steps that a round may have"
        raise BadInput("algorithm's every", value, rule, "write it like every=500")


def check_share(name: str, value: float, *, zero: bool = False) -> None:
    """Raise unless a value is above 0 (or 0, where that is allowed) and at most 1."""
    if not (0 <= value <= 1 if zero else 0 < value <= 1):
        raise BadInput(f"algorithm's {name}", value, "is no share between 0 and 1", "write it like 0.5")


def check_outer(rate: float, momentum: float) -> None:
    """Raise unless an outer step can be taken at a rate with a momentum, and dies away."""
    if not (isfinite(rate) and rate > 0):
        raise BadInput("algorithm's rate", rate, "is no finite number above 0", "write it like rate=0.7")
    if not 0 <= momentum < 1:
        rule = "is not at least 0 and below 1, so outer steps would grow without end"
        raise BadInput("algorithm's momentum", momentum, rule, "write it like momentum=0.9")
