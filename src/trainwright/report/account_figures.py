"""Figures of one simulated plan: where each place's time and memory go."""

from trainwright.report.account import Account
from trainwright.report.drawing import render_devices
from trainwright.report.figures import Axis, Band, Figure, Series
from trainwright.report.plan_figures import stacked
from trainwright.simulate.needs import Need

_GIB = 2**30
_MOST = 32  # places


def account_figures(account: Account) -> tuple[Figure, ...]:
    """Time by cause, and the memory of each stage beside what there is."""
    return _time(account), _memory(account)


def _time(account: Account) -> Figure:
    spent = {name: each for name, each in account.time_s.items() if each.busiest_s or each.busiest_hidden_s}
    names = tuple(spent)
    return Figure(
        name="time", title="What each cause adds to the step", x=Axis(title="cause"), y=Axis(title="seconds"),
        series=(
            Series(
                name="exposed, busiest place", kind="bars", x=names,
                y=tuple(each.busiest_s for each in spent.values()),
            ),
            Series(
                name="hidden, busiest place", kind="bars", x=names,
                y=tuple(each.busiest_hidden_s for each in spent.values()),
            ),
        ),
    )  # fmt: skip


def _memory(account: Account) -> Figure:
    shown = account.memory[:_MOST]
    held = [{name: each / _GIB for name, each in need.category_bytes.items()} for need in shown]
    capacity = account.capacity_bytes / _GIB
    return Figure(
        name="memory", title="Memory when each place is fullest", x=Axis(title="place"),
        y=Axis(title="GiB"), series=stacked([_name(each) for each in shown], held),
        bands=(Band(name="capacity", low=capacity, high=capacity),),
    )  # fmt: skip


def _name(need: Need) -> str:
    stages = ", ".join(map(str, need.stages))
    return f"{f'stage {stages}: ' if stages else ''}{render_devices(need.devices)}"
