"""Rules for the hyperparameters of algorithms."""

from trainwright.errors import BadInput


def check_whole(name: str, value: int, least: int) -> None:
    """Raise unless a value is a whole number of at least so much."""
    if not isinstance(value, int) or value < least:
        raise BadInput(f"algorithm's {name}", value, f"is no whole number of {least} or more", "correct it")


def check_share(name: str, value: float, *, zero: bool = False) -> None:
    """Raise unless a value is above 0 (or 0, where that is allowed) and at most 1."""
    if not (0 <= value <= 1 if zero else 0 < value <= 1):
        raise BadInput(f"algorithm's {name}", value, "is no share between 0 and 1", "write it like 0.5")
