"""Figures of islands beside exact training: what a step takes, and what was measured of the loss."""

from collections.abc import Mapping, Sequence

from trainwright.algorithm.risk import Risk
from trainwright.report.figures import Axis, Figure, Series
from trainwright.report.island_tables import ALONE
from trainwright.report.islands import ApartSummary, nearest_risk
from trainwright.report.plan_figures import stacked
from trainwright.report.summary import Summary

_EXACT = "exact"


def island_figures(
    exact: Summary | None, alone: Summary | None, found: Sequence[ApartSummary]
) -> tuple[Figure, ...]:
    """The step of each, and the risk to the loss of those that the study measured."""
    return (_steps({_EXACT: exact, ALONE: alone}, found), *_risks(found))


def _steps(exact: Mapping[str, Summary | None], found: Sequence[ApartSummary]) -> Figure:
    parts = [{"step of an island": each.island_step_s, **_more(each)} for each in found]
    names = [each.name for each in found]
    known = {name: each for name, each in exact.items() if each}
    parts = [*({"exact step": each.step_s} for each in known.values()), *parts]
    names = [*known, *names]
    return Figure(
        name="islands_step", title="A step, in the mean of a round", x=Axis(title="training"),
        y=Axis(title="seconds a step"), series=stacked(names, parts),
    )  # fmt: skip


def _more(found: ApartSummary) -> dict[str, float]:
    """What a mean step takes beyond an island's own: meetings, and exact steps of the run if it has some."""
    name = "meetings and exact steps" if found.exact_steps else "meetings"
    return {name: max(found.step_s - found.island_step_s, 0.0)}


def _risks(found: Sequence[ApartSummary]) -> tuple[Figure, ...]:
    nearest = [(each.name, nearest_risk(each.risks, each.islands, each.every)) for each in found]
    known: list[tuple[str, Risk]] = [(name, risk) for name, risk in nearest if risk is not None]
    if not known:
        return ()
    names = tuple(name for name, _ in known)
    shown = {
        "measured": tuple(risk.excess_loss for _, risk in known),
        "interval, low": tuple(risk.low for _, risk in known),
        "interval, high": tuple(risk.high for _, risk in known),
    }
    return (
        Figure(
            name="islands_risk", title="Loss above exact training's, in the nearest measurement",
            x=Axis(title="training"), y=Axis(title="of exact training's loss", percent=True),
            series=tuple(Series(name=name, kind="points", x=names, y=y) for name, y in shown.items()),
        ),
    )  # fmt: skip
