"""One plan in detail."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.cli.outcome import Outcome
from trainwright.cli.simulate import json_of, outcome_of, save_outcome
from trainwright.library.frames import build_frame, render_html
from trainwright.library.options import options_of
from trainwright.plan.strategy import Strategy
from trainwright.report.account import Account
from trainwright.report.summary import Summary
from trainwright.report.trace import UNITS, describe, save_trace
from trainwright.simulate.timeline import Timeline
from trainwright.units import render_bytes, render_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A step of a plan: its numbers (`account`), when every task ran (`timeline`), and whether it fits."""

    outcome: Outcome

    @property
    def account(self) -> Account:
        """The numbers of the step."""
        return self.outcome.account

    @property
    def timeline(self) -> Timeline:
        """When every task of the step ran."""
        return self.outcome.timeline

    @property
    def step_s(self) -> float:
        """The step in seconds."""
        return self.account.step_s

    @property
    def fits(self) -> bool:
        """Whether devices and hosts have the memory that they need."""
        return self.outcome.simulated.fits

    def to_dict(self) -> Mapping[str, object]:
        """The tree that `trainwright simulate --json` writes."""
        return json_of(self.outcome)

    def save_trace(self, path: str | Path) -> None:
        """Write a trace of all tasks, which Perfetto opens and `trainwright compare` reads."""
        save_trace(Path(path), self.timeline, describe(self.outcome.simulated.program, "predicted"))

    def to_dataframe(self, library: str | None = None) -> Any:
        """A row for each task: place, unit, label, cause, microbatch, start and end in seconds."""
        table, timeline = self.timeline.table, self.timeline
        unit = table.lane_unit[table.lane]
        columns = zip(
            table.unit_place[unit].tolist(), table.unit_kind[unit].tolist(), table.label.tolist(),
            table.microbatch.tolist(), timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True,
        )  # fmt: skip
        rows = [
            {
                "place": place, "unit": UNITS[kind], "task": table.labels[label],
                "cause": table.causes[label],
                "microbatch": microbatch, "start_s": start, "end_s": end,
            }
            for place, kind, label, microbatch, start, end in columns
        ]  # fmt: skip
        return build_frame(rows, library)

    def __repr__(self) -> str:
        return f"Simulation({self.account.plan}: {render_duration(self.step_s)}, MFU {self.account.mfu:.1%})"

    def _repr_html_(self) -> str:
        rows = [
            {"part": name, "busiest": render_duration(each.busiest_s), "mean": render_duration(each.mean_s)}
            for name, each in self.account.time_s.items()
        ]
        memory = render_bytes(max(need.total_bytes for need in self.outcome.simulated.needs))
        title = f"{self.account.plan}: {render_duration(self.step_s)}, MFU {self.account.mfu:.1%}, {memory}"
        return render_html(title, rows)


def simulate(
    model: str | Path,
    cluster: str | Path,
    plan: str | Path | Strategy | Summary,
    *,
    batch: int | None = None,
    seq: int | None = None,
    stack: str | None = None,
    **options: object,
) -> Simulation:
    """Every task of a step of a plan: a strategy, a plan file, or a plan of the zoo by name.

    Further options are those of `trainwright simulate`: `trace`, `report`, `figures`, `json` and `save_plan`
    name files, which are written. What does not fit is simulated all the same.
    """
    if isinstance(plan, Summary):
        batch = plan.global_batch if batch is None else batch
        seq = plan.seq if seq is None else seq
        plan = plan.strategy
    named = str(plan) if isinstance(plan, Strategy) else plan
    stated = {"batch": batch, "seq": seq, "stack": stack}
    asked = options_of("simulate", [model, cluster, named], stated | options)
    outcome = outcome_of(asked)
    save_outcome(asked, outcome)
    return Simulation(outcome=outcome)
