"""Figures of an answer: where the time and the memory of the best strategies go, and what would help."""

from collections.abc import Mapping, Sequence

from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.report.summary import Summary
from trainwright.report.whatif import BETTER, WhatIf

_GIB = 2**30
_MOST = 10  # strategies that are compared
_SMALL = 0.002  # of the largest total: parts that are never more are shown together
_OTHER = "other"


def plan_figures(
    summaries: Sequence[Summary], front: Sequence[Summary], answers: Sequence[WhatIf]
) -> tuple[Figure, ...]:
    """Time, memory, time against memory, and each resource a quarter better."""
    best = summaries[:_MOST]
    return (
        _time(best), _memory(best), _against(summaries, front), _what_if(answers),
    )  # fmt: skip


def _time(best: Sequence[Summary]) -> Figure:
    return Figure(
        name="step_time", title="Where the step's time goes", x=Axis(title="strategy"),
        y=Axis(title="seconds a step"), series=stacked(_names(best), [each.time_s for each in best]),
    )  # fmt: skip


def _memory(best: Sequence[Summary]) -> Figure:
    held = [{name: each / _GIB for name, each in summary.memory_bytes.items()} for summary in best]
    capacity = best[0].capacity_bytes / _GIB
    return Figure(
        name="memory", title="Memory of the fullest device", x=Axis(title="strategy"), y=Axis(title="GiB"),
        series=stacked(_names(best), held), bands=(Band(name="capacity", low=capacity, high=capacity),),
    )  # fmt: skip


def _against(summaries: Sequence[Summary], front: Sequence[Summary]) -> Figure:
    parts = (("strategies", summaries), ("Pareto front", front))
    return Figure(
        name="time_memory", title="Step time against memory",
        x=Axis(title="GiB on the fullest device"), y=Axis(title="seconds a step", log=True),
        series=tuple(
            Series(
                name=name, kind="points" if name == "strategies" else "line",
                x=tuple(each.total_bytes / _GIB for each in shown), y=tuple(each.step_s for each in shown),
            )
            for name, each_of in parts
            if (shown := sorted(each_of, key=lambda each: each.total_bytes))
        ),
    )  # fmt: skip


def _what_if(answers: Sequence[WhatIf]) -> Figure:
    return Figure(
        name="what_if", title=f"More tokens per second if one resource were {BETTER - 1:.0%} better",
        x=Axis(title="resource"), y=Axis(title="faster", percent=True),
        series=(
            Series(
                name="faster", kind="bars", x=tuple(each.resource for each in answers),
                y=tuple(each.faster for each in answers),
            ),
        ),
    )  # fmt: skip


def _names(best: Sequence[Summary]) -> tuple[str, ...]:
    return tuple(f"{rank}. {each.strategy}" for rank, each in enumerate(best, start=1))


def stacked(names: Sequence[str], parts: Sequence[Mapping[str, float]]) -> tuple[Series, ...]:
    """A stack for each name; parts that are nowhere large are one."""
    largest = max((sum(each.values()) for each in parts), default=0.0)
    kinds = list(dict.fromkeys(kind for each in parts for kind in each))
    large = [kind for kind in kinds if max(each.get(kind, 0.0) for each in parts) > _SMALL * largest]
    rows = {kind: [each.get(kind, 0.0) for each in parts] for kind in large}
    rows[_OTHER] = [sum(each.values()) - sum(each.get(kind, 0.0) for kind in large) for each in parts]
    return tuple(
        Series(name=kind, kind="stack", x=tuple(names), y=tuple(values))
        for kind, values in rows.items()
        if max(values, default=0.0) > 1e-9 * largest
    )
