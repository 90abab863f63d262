"""One simulated step of a plan: its numbers, and when every task ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.fields import FilePath, render_command
from trainwright.api.frames import render_html
from trainwright.api.requests import SimulateRequest
from trainwright.api.result import ReportedResult, Rows
from trainwright.api.subject import Subject, cluster_json
from trainwright.cost.anchor import Anchoring
from trainwright.output_file import save_text
from trainwright.plan.plan import Plan
from trainwright.plan.text import render_plan
from trainwright.report.account import Account
from trainwright.report.trace import UNITS, describe, render_trace, save_trace
from trainwright.simulate.islands import SimulatedApart
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import Simulated
from trainwright.units import render_bytes, render_duration

if TYPE_CHECKING:
    from trainwright.report.figures import Figure
    from trainwright.report.page import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation(ReportedResult, schema="simulate/1"):
    """A step of a plan: its numbers (`account`), when every task ran (`timeline`), and whether it fits.

    `batch` has the sequences of a step and what was asked for. Of a plan of islands the step is that of one,
    the account that of all, and `apart` has their round.
    """

    request: SimulateRequest
    subject: Subject
    plan: Plan
    notes: tuple[str, ...]
    simulated: Simulated
    account: Account
    batch: Mapping[str, object]
    apart: SimulatedApart | None = None
    anchor: Anchoring | None = None  # what runs of the user say of it

    @property
    def timeline(self) -> Timeline:
        """The step, task by task; of islands, the round with its last step so."""
        return self.apart.round.timeline if self.apart else self.simulated.timeline

    @property
    def step_s(self) -> float:
        """The step in seconds."""
        return self.account.step_s

    @property
    def fits(self) -> bool:
        """Whether devices and hosts have the memory that they need."""
        return self.simulated.fits

    def check_fit(self) -> None:
        """Raise `InfeasiblePlan` if the plan does not fit."""
        self.simulated.check()

    def tree(self) -> Mapping[str, object]:
        """The tree that `trainwright simulate --json` writes."""
        from trainwright.report.island_account import round_account_of

        account, stack = self.account, self.subject.stack
        return {
            "model": self.subject.graph.name,
            "cluster": cluster_json(self.subject.cluster),
            "stack": stack.name,
            "optimizer": stack.optimizer.name if stack.optimizer else None,
            "grad_dtype": stack.grad_dtype or None,
            "expert_imbalance": stack.stated_imbalance or None,
            "anchor": self.anchor,
            "notes": self.notes,
            "batch": self.batch,
            **({"apart": round_account_of(self.apart)} if self.apart else {}),
            **{name: getattr(account, name) for name in account.__dataclass_fields__},
        }

    def rows(self) -> Rows:
        """A row for each task: place, unit, label, cause, microbatch, start and end in seconds."""
        table, timeline = self.timeline.table, self.timeline
        unit = table.lane_unit[table.lane]
        columns = zip(
            table.unit_place[unit].tolist(), table.unit_kind[unit].tolist(), table.label.tolist(),
            table.microbatch.tolist(), timeline.start_s.tolist(), timeline.end_s.tolist(), strict=True,
        )  # fmt: skip
        return [
            {
                "place": place, "unit": UNITS[kind], "task": table.labels[label],
                "cause": table.causes[label],
                "microbatch": microbatch, "start_s": start, "end_s": end,
            }
            for place, kind, label, microbatch, start, end in columns
        ]  # fmt: skip

    def figures(self) -> "Sequence[Figure]":
        """What is drawn of it."""
        from trainwright.report.account_figures import account_figures

        return account_figures(self.account)

    def page(self) -> "Page":
        """The report."""
        from trainwright.api.pages import UNDATED, table_rows
        from trainwright.report import account_tables as shown
        from trainwright.report.blocks import blocks_of
        from trainwright.report.page import Page

        account = self.account
        parts = (
            shown.time_table, shown.memory_table, shown.holdings_table, shown.traffic_table, shown.path_table,
        )  # fmt: skip
        return Page(
            title=f"{self.subject.graph.name}: {account.plan}",
            question=("What does a step of this plan do, and what does it wait for?", *self.notes[:2]),
            answer=(shown.title(account), *shown.account_lines(account), shown.path_line(account)),
            figures=self.figures(), tables=table_rows([part(account) for part in parts]),
            assumptions=(*self.notes[2:], UNDATED), command=render_command("simulate", self.request),
            blocks=blocks_of(self.simulated.timeline), capacity_bytes=account.capacity_bytes,
        )  # fmt: skip

    def render_trace(self) -> str:
        """A trace of all tasks of the step as text, which Perfetto opens."""
        return "".join(render_trace(self.simulated.timeline, describe(self.simulated.program, "predicted")))

    def save_trace(self, path: FilePath) -> None:
        """Write a trace of all tasks, which Perfetto opens and `trainwright compare` reads."""
        about = describe(self.simulated.program, "predicted") | {"cost": " ".join(self.subject.basis)}
        save_trace(Path(path), self.timeline, about | {"plan": self.account.plan})

    def save_plan(self, path: FilePath) -> None:
        """Write the plan as text, which `trainwright simulate` and `run` take."""
        save_text(Path(path), render_plan(self.plan))

    def __repr__(self) -> str:
        return f"Simulation({self.account.plan}: {render_duration(self.step_s)}, MFU {self.account.mfu:.1%})"

    def _repr_html_(self) -> str:
        rows = [
            {"part": name, "busiest": render_duration(each.busiest_s), "mean": render_duration(each.mean_s)}
            for name, each in self.account.time_s.items()
        ]
        memory = render_bytes(max(need.total_bytes for need in self.simulated.needs))
        title = f"{self.account.plan}: {render_duration(self.step_s)}, MFU {self.account.mfu:.1%}, {memory}"
        return render_html(title, rows)
