"""What a study found, in the form that every way of showing it takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainwright.report.figures import Figure

Tell = Callable[[int, int, str], None]  # done, planned, what


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a study found: rows of tables by name, all of it as a tree, figures, and what to say first."""

    title: str
    tables: Mapping[str, Sequence[Mapping[str, object]]]
    tree: object
    figures: Sequence[Figure]
    lines: Sequence[str]
