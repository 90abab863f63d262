"""A prediction in lines: its speed, and what a run at that speed takes."""

from collections.abc import Iterator
from math import isfinite
from typing import Protocol

from trainwright.economics.goodput import Goodput
from trainwright.report.budget import Budget
from trainwright.units import render_bytes, render_count, render_dollars, render_duration, render_si


class Predicted(Protocol):
    """What a `Summary` of a closed form and an `Account` of a simulation have alike."""

    @property
    def step_s(self) -> float: ...
    @property
    def low_s(self) -> float: ...
    @property
    def high_s(self) -> float: ...
    @property
    def tokens_per_s(self) -> float: ...
    @property
    def tokens_per_s_per_device(self) -> float: ...
    @property
    def mfu(self) -> float: ...
    @property
    def hfu(self) -> float: ...
    @property
    def power_w(self) -> float: ...
    @property
    def device_w(self) -> float: ...
    @property
    def joules_per_token(self) -> float: ...
    @property
    def tokens_per_joule(self) -> float: ...
    @property
    def goodput(self) -> Goodput | None: ...
    @property
    def effective_tokens_per_s(self) -> float: ...
    @property
    def budget(self) -> Budget: ...


def speed_line(found: Predicted) -> str:
    """Tokens per second, utilisation, and the step with its range."""
    per_device = render_si(found.tokens_per_s_per_device, "tokens/s")
    return (
        f"{render_si(found.tokens_per_s, 'tokens/s')}, {per_device} per device, MFU {found.mfu:.1%}, "
        f"HFU {found.hfu:.1%}, step {render_duration(found.step_s)} "
        f"({render_range(found.low_s, found.high_s)})"
    )


def run_lines(found: Predicted) -> Iterator[str]:
    """What the run takes; energy; interruptions."""
    budget = found.budget
    yield (
        f"{render_count(budget.tokens)} tokens: {_days(budget)}, {render_dollars(budget.dollars)} "
        f"(${budget.dollars_per_million_tokens:.3g} per million tokens), "
        f"{budget.device_hours:,.0f} device-hours"
    )
    yield (
        f"{budget.kwh:,.0f} kWh at {render_si(found.power_w, 'W')} ({found.device_w:,.0f} W/device), "
        f"{_mass(budget.co2e_kg)} CO₂e; "
        f"{render_si(found.joules_per_token, 'J')} per token, {found.tokens_per_joule:.3g} tokens per joule"
    )
    if found.goodput:
        yield from _interruptions(found.effective_tokens_per_s, found.goodput)


def render_range(low_s: float, high_s: float) -> str:
    """Two durations in one unit: `5.1–6.3 s`."""
    high = render_duration(high_s)
    number, unit = high.split(" ")
    factor = high_s / float(number)
    return f"{low_s / factor:.3g}–{number} {unit}"


def _days(budget: Budget) -> str:
    if not isfinite(budget.days):
        return "never finished"
    return f"{budget.days:,.1f} days ({budget.steady_days:,.1f} without interruptions)"


def _mass(kilograms: float) -> str:
    return f"{kilograms:,.3g} kg" if kilograms < 1e3 else f"{kilograms / 1e3:,.0f} t"


def _interruptions(effective_tokens_per_s: float, goodput: Goodput) -> Iterator[str]:
    """Goodput, and what takes the rest."""
    lost = [
        ("writing checkpoints", goodput.checkpoint_share),
        ("lost work", goodput.redone_share),
        ("detection and restart", goodput.restart_share),
        ("planned stops", goodput.planned_share),
    ]
    yield (
        f"Goodput {goodput.share:.1%}, {render_si(effective_tokens_per_s, 'tokens/s')} effective: "
        f"{', '.join(f'{name} {share:.2%}' for name, share in lost)}; stragglers add "
        f"{goodput.straggling:.2%} to a step"
    )
    if goodput.failures_per_day:
        yield (
            f"A failure every {render_duration(86400.0 / goodput.failures_per_day)}; a checkpoint of "
            f"{render_bytes(goodput.checkpoint_bytes)} takes {render_duration(goodput.checkpoint_s)}, "
            f"one every {render_duration(goodput.interval_s)}"
        )
