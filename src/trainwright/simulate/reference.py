"""When every task of a table runs, as plainly as it can be said: what `engine` is checked by."""

from itertools import pairwise
from math import inf, nan

import numpy as np

from trainwright.program.table import COMPUTE, Floats, Table

_MOST_LOAD = 0.9


def run(table: Table) -> tuple[Floats, Floats]:
    """When each task starts and ends; NaN for those that never do."""
    play = _Play(table)
    play.start_all()
    while (now_s := min((unit.end_s for unit in play.units), default=inf)) < inf:
        play.now_s = now_s
        for unit in play.units:
            if unit.end_s == now_s:
                play.end(unit)
        play.start_all()
    return np.array(play.start_s), np.array(play.end_s)


class _Unit:
    """A unit and what it runs."""

    def __init__(self, place: int, is_compute: bool, lanes: list[list[int]]) -> None:
        self.place, self.is_compute, self.lanes = place, is_compute, lanes
        self.task: int | None = None
        self.end_s = inf
        self.remaining_s = self.since_s = 0.0


class _Play:
    """The state of a step at one moment."""

    def __init__(self, table: Table) -> None:
        bounds = table.first_queued.tolist()
        queues = [table.queue[a:b].tolist()[::-1] for a, b in pairwise(bounds)]
        lanes = [
            [queue for queue, owner in zip(queues, table.lane_unit, strict=True) if owner == unit]
            for unit in range(len(table.unit_place))
        ]
        kinds = zip(table.unit_place.tolist(), table.unit_kind == COMPUTE, lanes, strict=True)
        self.units = [_Unit(place, bool(is_compute), owned) for place, is_compute, owned in kinds]
        self.seconds, self.slows = table.seconds.tolist(), table.slows.tolist()
        bounds = table.first_input.tolist()
        inputs = table.inputs.tolist()
        self.inputs = [inputs[a:b] for a, b in pairwise(bounds)]
        self.rates = [1.0] * len(table.places)
        self.start_s, self.end_s = [nan] * len(table), [nan] * len(table)
        self.ended: set[int] = set()
        self.now_s = 0.0

    def end(self, unit: _Unit) -> None:
        assert unit.task is not None
        self.end_s[unit.task] = self.now_s
        self.ended.add(unit.task)
        unit.task, unit.end_s = None, inf

    def start_all(self) -> None:
        """Start whatever can, then settle the rates."""
        for unit in self.units:
            if unit.task is None:
                self.start(unit)
        loads = [0.0] * len(self.rates)
        for unit in self.units:
            if unit.task is not None and not unit.is_compute:
                loads[unit.place] += self.slows[unit.task]
        for place, load in enumerate(loads):
            self.change_rate(place, 1.0 - min(load, _MOST_LOAD))

    def start(self, unit: _Unit) -> None:
        """Start the head of the first lane whose inputs have ended."""
        for lane in unit.lanes:
            if lane and self.ended.issuperset(self.inputs[lane[-1]]):
                task = lane.pop()
                self.start_s[task] = unit.since_s = self.now_s
                unit.task, unit.remaining_s = task, self.seconds[task]
                rate = self.rates[unit.place] if unit.is_compute else 1.0
                unit.end_s = self.now_s + self.seconds[task] / rate
                return

    def change_rate(self, place: int, rate: float) -> None:
        old_rate = self.rates[place]
        self.rates[place] = rate
        for unit in self.units:
            if unit.place == place and unit.is_compute and unit.task is not None and rate != old_rate:
                done_s = (self.now_s - unit.since_s) * old_rate
                unit.remaining_s = max(unit.remaining_s - done_s, 0.0)
                unit.since_s = self.now_s
                unit.end_s = self.now_s + unit.remaining_s / rate
