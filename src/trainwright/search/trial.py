"""A plan tried in simulation: its step, its memory, and where the time goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from trainwright.plan.plan import Plan
from trainwright.program.setting import Setting
from trainwright.simulate.power import drawn
from trainwright.simulate.whole import Simulated, simulate_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What a simulation says of a plan; the parts of `time_s`, means over devices, add up to the step."""

    plan: str  # its line of text
    step_s: float
    total_bytes: float  # of the fullest device, with the reserve
    capacity_bytes: float
    fits: bool
    time_s: Mapping[str, float]
    device_w: float  # of the mean device
    tokens_per_joule: float  # at the meter
    row_bytes: tuple[float, ...]  # what each row of the pipeline has allocated beyond the software's own


def try_plan(setting: Setting, plan: Plan, rows: int = 1) -> Trial:
    """The plan simulated; `rows` are those of its pipeline."""
    simulated = simulate_plan(setting, plan)
    power, tokens = drawn(simulated), plan.batch * plan.microbatches * setting.seq
    joules = power.power_w * simulated.step_s
    return Trial(
        plan=plan.name,
        step_s=simulated.step_s,
        total_bytes=simulated.needs[simulated.fullest].total_bytes,
        capacity_bytes=simulated.capacity_bytes,
        fits=simulated.fits,
        time_s=_mean_times(simulated),
        device_w=power.device_w,
        tokens_per_joule=tokens / joules if joules else inf,
        row_bytes=_row_bytes(simulated, plan.devices // rows, rows),
    )


def _mean_times(simulated: Simulated) -> dict[str, float]:
    weights = np.array([len(devices) for devices in simulated.timeline.table.places], float)
    parts = simulated.breakdown.time_s.items()
    return {cause: float(np.average(seconds, weights=weights)) for cause, seconds in parts}


def _row_bytes(simulated: Simulated, per_row: int, rows: int) -> tuple[float, ...]:
    found = [0.0] * rows
    for need in simulated.needs:
        row = need.devices[0] // per_row
        own = need.total_bytes - need.category_bytes["reserve"] - need.category_bytes["buffers"]
        found[row] = max(found[row], own)
    return tuple(found)
