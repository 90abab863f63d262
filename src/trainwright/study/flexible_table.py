"""Outcomes of the comparison of flexible plans as rows: for people, for files."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from trainwright.report.figures import Axis, Figure, Series
from trainwright.report.tables import table
from trainwright.search.trial import Trial
from trainwright.study.flexible_plans import RIVALS, Outcome
from trainwright.units import render_duration

_LARGE = 1.5  # times as fast
_SPACES = (*RIVALS, "knobs")
_MEASURES = ("plan", "step_s", "total_bytes", "device_w", "tokens_per_joule")
COLUMNS = (
    "model", "device", "count", "memory_gib", "links", "cost",
    *(f"{name}_{what}" for name in (*_SPACES, "flexible") for what in _MEASURES),
    "best_system", "speedup", "speedup_over_knobs", "reason",
)  # fmt: skip


def row_of(outcome: Outcome) -> Mapping[str, object]:
    """One line of CSV."""
    case = outcome.case
    row: dict[str, object] = {
        "model": case.model, "device": case.device, "count": case.count,
        "memory_gib": case.memory_gib, "links": case.links, "cost": case.cost,
    }  # fmt: skip
    for name, trial in (*outcome.best.items(), ("flexible", outcome.flexible)):
        row |= {f"{name}_{what}": getattr(trial, what, "") for what in _MEASURES}
    return row | {
        "best_system": outcome.rival[0] if outcome.rival else "",
        "speedup": outcome.speedup or "",
        "speedup_over_knobs": over(outcome.best.get("knobs"), outcome.flexible) or "",
        "reason": outcome.reason,
    }


def case_table(outcomes: Sequence[Outcome]) -> Table:
    """Steps of the best of each space, and how much faster the flexible plan is."""
    spaces = [name for name in _SPACES if any(each.best.get(name) for each in outcomes)]
    short = [name.removesuffix("-2022") for name in spaces]
    headers = ["case", *short, "flexible", "over 2022", "over knobs"]
    rows = [
        [
            f"{each.case.model}, {_where(each)}",
            *(_step(each.best.get(name)) for name in spaces),
            _step(each.flexible),
            _ratio(each.speedup),
            _ratio(over(each.best.get("knobs"), each.flexible)),
        ]
        for each in outcomes
    ]
    title = "Step of the best plan of each space (systems of 2022, knobs of today), simulated"
    return table(title, headers, rows)


def reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Of each case, the flexible plan and where its speed comes from."""
    return [
        f"{each.case.model} on {_where(each)}: {each.flexible.plan if each.flexible else 'nothing fits'}. "
        f"{each.reason}"
        for each in outcomes
    ]


def outcome_figures(outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
    """Steps of the best plan of each space; how much faster flexible plans are, beside what was published."""
    if not outcomes:
        return ()
    names = tuple(f"{each.case.model}, {_where(each)}" for each in outcomes)
    spaces = [name for name in _SPACES if any(each.best.get(name) for each in outcomes)]
    columns = {name: [each.best.get(name) for each in outcomes] for name in spaces}
    columns["flexible"] = [each.flexible for each in outcomes]
    gains = [each.speedup or 0.0 for each in outcomes]
    large = {each.case.family for each in outcomes if (each.speedup or 0.0) > _LARGE}
    return (
        Figure(
            name="steps", title="Step of the best plan of each space, simulated", x=Axis(title="case"),
            y=Axis(title="seconds a step"),
            series=tuple(
                Series(
                    name=name, kind="bars", x=names, y=tuple(each.step_s if each else 0.0 for each in trials)
                )
                for name, trials in columns.items()
            ),
        ),
        Figure(
            name="speedup", title="Flexible plans over the best of 2022", x=Axis(title="case"),
            y=Axis(title="times as fast"),
            claim=f"Flexible plans are more than {_LARGE:g} times as fast on at least two models.",
            holds=len(large) >= 2,
            finding=f"Up to {max(gains):.2f}x; more than that on: {', '.join(sorted(large)) or 'none'}.",
            series=(Series(name="over 2022", kind="bars", x=names, y=tuple(gains)),),
        ),
    )  # fmt: skip


def over(rival: Trial | None, trial: Trial | None) -> float | None:
    """How much faster a trial is than another."""
    return rival.step_s / trial.step_s if rival and trial else None


def _where(outcome: Outcome) -> str:
    case = outcome.case
    memory = f", {case.memory_gib} GiB" if case.memory_gib else ""
    links = f", {case.links:g}x links" if case.links != 1.0 else ""
    return f"{case.count} {case.device}{memory}{links}"


def _step(trial: Trial | None) -> str:
    return render_duration(trial.step_s) if trial else "–"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}x" if value else "–"
