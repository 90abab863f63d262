"""One plan simulated from end to end: lowered, tabulated and played."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.plan.plan import Plan
from trainwright.program.lower import Program, lower
from trainwright.program.orders import check_orders
from trainwright.program.setting import Setting
from trainwright.program.spill import Spilled
from trainwright.program.table import CATEGORIES, FROM_THE_START, Ints, Table
from trainwright.program.tabulate import tabulate
from trainwright.simulate.breakdown import Breakdown, breakdown
from trainwright.simulate.memory import Peaks, peaks
from trainwright.simulate.needs import Need, check_needs, needs
from trainwright.simulate.sharing import share_cores
from trainwright.simulate.simulate import simulate
from trainwright.simulate.tiers import find_spilled
from trainwright.simulate.timeline import Timeline

RECOMPUTE = "recompute"
_OPERATORS = ("matmul", "attention", "streaming")  # causes of what operators do
_MOST_OPERATORS = 20_000_000  # over all microbatches: whose tasks fit into memory here


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A plan as a program, when its tasks run, and what follows from that, found when it is asked for."""

    program: Program
    timeline: Timeline
    spilled: Spilled | None = None

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.program.plan

    @property
    def step_s(self) -> float:
        """The time of a step."""
        return self.timeline.step_s

    @cached_property
    def breakdown(self) -> Breakdown:
        """What each cause adds to the step, on each place."""
        return breakdown(self.timeline)

    @cached_property
    def peaks(self) -> Peaks:
        """The most that each place has allocated."""
        return peaks(self.timeline)

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """The memory that each place needs, by category, with a reserve for fragments."""
        return needs(self.program, self.timeline, self.peaks, self.spilled)

    @property
    def fullest(self) -> int:
        """The place that needs most memory."""
        return max(range(len(self.needs)), key=lambda place: self.needs[place].total_bytes)

    @property
    def capacity_bytes(self) -> float:
        """The memory that a device can hold tensors in: its own, and expanded tiers."""
        return self.program.setting.cluster.capacity_bytes

    @property
    def fits(self) -> bool:
        """Whether devices and hosts have the memory that they need."""
        try:
            self.check()
        except InfeasiblePlan:
            return False
        return True

    def check(self) -> None:
        """Raise `InfeasiblePlan`, which names stage, device and remedy, if it does not fit."""
        check_needs(self.program, self.needs)


def simulate_plan(setting: Setting, plan: Plan, beside_bytes: float = 0.0) -> Simulated:
    """A plan on a model and a cluster, at the plan's precision, whether it fits or not.

    Every device holds `beside_bytes` more than the plan says, throughout.
    `BadInput` if it breaks a rule, `Deadlock` (which is one) if its order and its data contradict each other.
    """
    program = lower(replace(setting, precision=plan.precision), plan)
    check_size(len(program.instances), plan.microbatches)
    check_orders(program)
    timeline = simulate(hold_beside(recompute_apart(tabulate(program)), beside_bytes))
    spilled = find_spilled(program, timeline)
    if spilled is not None:
        timeline = simulate(hold_beside(recompute_apart(tabulate(program, spilled)), beside_bytes))
    return Simulated(
        program=program, timeline=share_cores(timeline, setting.cluster.at_once), spilled=spilled
    )


def hold_beside(table: Table, size_bytes: float) -> Table:
    """The table where every place holds so many bytes more from start to end, as state."""
    if not size_bytes:
        return table
    places = len(table.places)
    return replace(
        table,
        buffer_place=np.append(table.buffer_place, np.arange(places)).astype(np.int32),
        buffer_bytes=np.append(table.buffer_bytes, np.full(places, size_bytes)),
        buffer_category=_more(table.buffer_category, CATEGORIES.index("optimizer"), places),
        buffer_from=_more(table.buffer_from, FROM_THE_START, places),
        first_reader=np.append(table.first_reader, np.full(places, table.first_reader[-1])),
    )


def _more(column: Ints, value: int, count: int) -> Ints:
    return np.append(column, np.full(count, value)).astype(np.int32)


def check_size(operators: int, microbatches: int) -> None:
    """Raise if a step has more tasks than can be simulated."""
    if operators * microbatches > _MOST_OPERATORS:
        raise BadInput(
            "microbatches", microbatches, f"of {operators} operators each are too many to simulate",
            "use a smaller batch, or a larger mb",
        )  # fmt: skip


def recompute_apart(table: Table) -> Table:
    """The table with what operators do again counted as a cause of its own."""
    pairs = zip(table.labels, table.causes, strict=True)
    return replace(
        table,
        causes=tuple(
            RECOMPUTE if cause in _OPERATORS and label.endswith(" R") else cause for label, cause in pairs
        ),
    )
