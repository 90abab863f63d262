"""The mapping of parallel axes to levels of the network, searched around the best strategies."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, Job
from trainwright.plan.mapping import AXES, ORDERS
from trainwright.plan.strategy import Strategies, Strategy, stack_strategies
from trainwright.units import render_duration

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_NOTABLE = 0.002  # of a step: what is named
_WORDS = {
    "tp": "communication inside layers", "cp": "communication of sequences", "ep": "tokens to experts",
    "pp": "sends between stages", "dp": "gradients and weights",
}  # fmt: skip


def can_matter(job: Job) -> bool:
    """Whether it matters where ranks stand: on several levels, whose times are not those measured."""
    return len(job.cluster.levels) > 1 and job.efficiency.table is None


def mapped(strategies: Strategies) -> tuple[Strategies, Ints]:
    """Every other mapping of each strategy, and which strategy each is of."""
    sizes = np.stack([getattr(strategies, axis) > 1 for axis in AXES], axis=1)
    rows: list[int] = []
    orders: list[int] = []
    for row, wide in enumerate(map(tuple, sizes.tolist())):
        others = _other_orders(wide)
        rows += [row] * len(others)
        orders += others
    where = np.array(rows, dtype=np.int64)
    return replace(strategies.take(where), order=np.array(orders, dtype=np.int64)), where


@cache
def _other_orders(wide: tuple[bool, ...]) -> tuple[int, ...]:
    """The orders of axes that have more than one rank, but for the usual one, as indices into `ORDERS`."""
    alone = [axis for axis, more in zip(AXES, wide, strict=True) if not more]
    shown = [axis for axis, more in zip(AXES, wide, strict=True) if more]
    return tuple(ORDERS.index("-".join([*alone, *order])) for order in list(permutations(shown))[1:])


def explain_order(job: Job, strategy: Strategy) -> str:
    """Why a strategy's mapping is better than the usual one, from what communication each shows."""
    usual = replace(strategy, order=ORDERS[0])
    both = estimate(job, stack_strategies([strategy, usual]))
    own_s, usual_s = both.step_s.tolist()
    axes = [axis for axis in strategy.order.split("-") if getattr(strategy, axis) > 1]
    changes = "; ".join(_changes(both.time_s, usual_s)) or "a little of everything"
    return (
        f"Mapping: {axes[0]} innermost on the network, then {', '.join(axes[1:])}: "
        f"{usual_s / own_s:.3f}x as fast as in the usual order ({changes})."
    )


def _changes(time_s: Mapping[str, Array], step_s: float) -> Iterator[str]:
    for axis in COMMUNICATION:
        own, usual = time_s[axis].tolist()
        if abs(own - usual) > _NOTABLE * step_s:
            yield f"{_WORDS[axis]} {render_duration(usual)} to {render_duration(own)}"
