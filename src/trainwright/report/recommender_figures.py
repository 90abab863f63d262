"""Figures of a recommender's plans: where time and memory go, and the cluster in instances."""

from collections.abc import Sequence

from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.report.plan_figures import stacked
from trainwright.report.recommender import TablesSummary

_GIB = 2**30
_MOST = 10  # shardings that are compared


def recommender_figures(
    plans: Sequence[TablesSummary], instances: Sequence[TablesSummary]
) -> tuple[Figure, ...]:
    """Time and memory of the best shardings of all devices, or of instances if there are none; instances."""
    best = (plans or instances)[:_MOST]
    names = [_name(each) for each in best]
    held = [{name: part / _GIB for name, part in each.memory_bytes.items()} for each in best]
    capacity = best[0].capacity_bytes / _GIB
    return (
        Figure(
            name="step_time", title="Where the step's time goes", x=Axis(title="sharding"),
            y=Axis(title="seconds a step"), series=stacked(names, [each.time_s for each in best]),
        ),
        Figure(
            name="memory", title="Memory of the fullest device", x=Axis(title="sharding"),
            y=Axis(title="GiB"), series=stacked(names, held),
            bands=(Band(name="capacity", low=capacity, high=capacity),),
        ),
        Figure(
            name="instances", title="Samples of the whole cluster, in instances beside each other",
            x=Axis(title="instances x devices each"), y=Axis(title="samples per second"),
            series=(
                Series(
                    name="samples per second", kind="bars",
                    x=tuple(f"{each.instances} x {each.devices}" for each in instances),
                    y=tuple(each.samples_per_s for each in instances),
                ),
            ),
        ),
    )  # fmt: skip


def _name(each: TablesSummary) -> str:
    sharding = each.sharding
    return f"tables={sharding.tables} rows={sharding.rows} columns={sharding.columns}"
