"""Shardings of a recommender's tables, as a value of the library."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.cli.plan_tables import TablesAnswer, tables_row
from trainwright.library.frames import build_frame, render_html
from trainwright.report.recommender import TablesSummary
from trainwright.units import render_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlans:
    """The best shardings over all devices, best first; and the best of instances of each size."""

    answer: TablesAnswer

    @property
    def best(self) -> TablesSummary:
        """What gets most samples from the cluster."""
        return self.answer.best

    @property
    def instances(self) -> tuple[TablesSummary, ...]:
        """The best of instances of each size."""
        return self.answer.instances

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and what predictions rest on."""
        return self.answer.notes

    def __len__(self) -> int:
        return len(self.answer.plans)

    def __iter__(self) -> Iterator[TablesSummary]:
        return iter(self.answer.plans)

    def __getitem__(self, index: int) -> TablesSummary:
        return self.answer.plans[index]

    def to_dict(self) -> Mapping[str, object]:
        """The tree that `trainwright plan --json` writes."""
        return self.answer.tree()

    def to_dataframe(self, library: str | None = None) -> Any:
        """A row for each sharding."""
        return build_frame([tables_row(each) for each in self], library)

    def __repr__(self) -> str:
        best = self.best
        return f"TablePlans({len(self)}, best {best.instances} x {best.plan}: {render_duration(best.step_s)})"

    def _repr_html_(self) -> str:
        return render_html(self.notes[0], [tables_row(each) for each in self])
