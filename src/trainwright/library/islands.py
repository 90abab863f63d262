"""Exact training beside low-communication algorithms, as a value of the library."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.cli.plan_islands import ApartAnswer, islands_rows
from trainwright.library.frames import build_frame, render_html
from trainwright.report.islands import ApartSummary
from trainwright.report.summary import Summary
from trainwright.units import render_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class IslandPlans:
    """Each algorithm with its best plan; exact training, if it fits; and what to choose."""

    answer: ApartAnswer

    @property
    def exact(self) -> Summary | None:
        """The best strategy of exact training."""
        return self.answer.best_exact

    @property
    def advice(self) -> list[str]:
        """What to choose, in words."""
        return self.answer.advice

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and what predictions rest on."""
        return self.answer.notes

    @property
    def refused(self) -> Mapping[str, str]:
        """Algorithms for which nothing fits, and why."""
        return self.answer.refused

    def __len__(self) -> int:
        return len(self.answer.found)

    def __iter__(self) -> Iterator[ApartSummary]:
        return iter(self.answer.found)

    def __getitem__(self, index: int) -> ApartSummary:
        return self.answer.found[index]

    def to_dict(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --algorithm --json` writes."""
        return self.answer.tree()

    def to_dataframe(self, library: str | None = None) -> Any:
        """A row for exact training, and one for each measured risk of each algorithm."""
        return build_frame(islands_rows(self.answer), library)

    def __repr__(self) -> str:
        listed = ", ".join(f"{each.name} {render_duration(each.step_s)}" for each in self)
        return f"IslandPlans({listed})"

    def _repr_html_(self) -> str:
        return render_html(self.notes[0], islands_rows(self.answer))
