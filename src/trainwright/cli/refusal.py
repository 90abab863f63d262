"""Options that a command cannot honour in what it is asked to do are errors that name them."""

import argparse
from collections.abc import Iterable

from trainwright.errors import BadInput


def refuse_given(
    options: argparse.Namespace, names: Iterable[str], rule: str, remedy: str = "leave it out"
) -> None:
    """Raise for the first of some options that was given."""
    for name in names:
        if name in options.given:
            value = getattr(options, name)
            shown = "" if value is True else ", ".join(value) if isinstance(value, list) else value
            raise BadInput(flag_of(name), shown, rule, remedy)


def refuse_others(
    options: argparse.Namespace, taken: Iterable[str], rule: str, remedy: str = "leave it out"
) -> None:
    """Raise for the first option that was given and is not among those taken."""
    refuse_given(options, sorted(options.given - set(taken)), rule, remedy)


def flag_of(name: str) -> str:
    """An option as a user writes it."""
    return f"--{name.replace('_', '-')}"
