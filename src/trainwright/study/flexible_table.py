"""Outcomes of the comparison of flexible plans as rows: for people, for files."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from trainwright.report.tables import table
from trainwright.search.trial import Trial
from trainwright.study.flexible_plans import RIVALS, Outcome
from trainwright.units import render_bytes, render_duration

_SPACES = (*RIVALS, "knobs")
COLUMNS = (
    "model", "device", "count", "memory_gib", "links",
    *(f"{name}_{what}" for name in (*_SPACES, "flexible") for what in ("plan", "step_s", "total_bytes")),
    "best_system", "speedup", "speedup_over_knobs", "reason",
)  # fmt: skip


def row_of(outcome: Outcome) -> Mapping[str, object]:
    """One line of CSV."""
    case = outcome.case
    row: dict[str, object] = {
        "model": case.model, "device": case.device, "count": case.count,
        "memory_gib": case.memory_gib, "links": case.links,
    }  # fmt: skip
    for name, trial in (*outcome.best.items(), ("flexible", outcome.flexible)):
        row |= {f"{name}_{what}": getattr(trial, what, "") for what in ("plan", "step_s", "total_bytes")}
    return row | {
        "best_system": outcome.rival[0] if outcome.rival else "",
        "speedup": outcome.speedup or "",
        "speedup_over_knobs": over(outcome.best.get("knobs"), outcome.flexible) or "",
        "reason": outcome.reason,
    }


def case_table(outcomes: Sequence[Outcome]) -> Table:
    """Steps and memory of the best of each space, and how much faster the flexible plan is."""
    headers = ["model", "devices", *_SPACES, "flexible", "over systems", "over knobs"]
    rows = [
        [
            each.case.model,
            _where(each),
            *(_cell(each.best.get(name)) for name in _SPACES),
            _cell(each.flexible),
            _ratio(each.speedup),
            _ratio(over(each.best.get("knobs"), each.flexible)),
        ]
        for each in outcomes
    ]
    return table("Step and memory of the best plan of each space, simulated", headers, rows, left=2)


def reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Of each case, the flexible plan and where its speed comes from."""
    return [
        f"{each.case.model} on {_where(each)}: {each.flexible.plan if each.flexible else 'nothing fits'}. "
        f"{each.reason}"
        for each in outcomes
    ]


def over(rival: Trial | None, trial: Trial | None) -> float | None:
    """How much faster a trial is than another."""
    return rival.step_s / trial.step_s if rival and trial else None


def _where(outcome: Outcome) -> str:
    case = outcome.case
    memory = f", {case.memory_gib} GiB" if case.memory_gib else ""
    links = f", {case.links:g}x links" if case.links != 1.0 else ""
    return f"{case.count} {case.device}{memory}{links}"


def _cell(trial: Trial | None) -> str:
    return f"{render_duration(trial.step_s)} {render_bytes(trial.total_bytes)}" if trial else "–"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}x" if value else "–"
