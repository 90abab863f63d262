"""The event loop, compiled: importing this imports numba, so `engine` does it only when it runs."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from trainwright.program.table import Floats, Ints, Starts
from trainwright.simulate.state import NOTHING, Records

_Function = TypeVar("_Function", bound=Callable[..., Any])
MOST_LOAD = 0.9  # of a compute unit's rate, that what runs beside it can take


def _compiled(function: _Function) -> _Function:
    """A function that allocates nothing, and so goes without counts of references: nearly twice as fast."""
    options: dict[str, Any] = {"error_model": "numpy", "forceinline": True, "_nrt": False}
    return cast(_Function, njit(cache=True, **options)(function))


@_compiled
def play(
    tasks: Records, consumers: Ints, lanes: Records, queue: Ints, units: Records, places: Records,
    members: Ints, ends: Floats, found: Ints, stack: Ints, start_s: Floats, end_s: Floats,
) -> None:  # fmt: skip
    """Run all events from a fresh state, filling starts and ends."""
    now, count = 0.0, len(units)
    while True:
        _start_found(tasks, lanes, queue, units, places, ends, found, count, now, start_s)
        _change_rates(units, places, members, ends, found, count, now)
        now = ends[1]
        if now == np.inf:
            return
        count = _find_ended(units, ends, found, stack)
        for index in range(count):
            end_s[units[found[index]]["running"]] = now
            count = _end(tasks, consumers, lanes, queue, units, places, found, index, count)


@_compiled
def _start_found(
    tasks: Records, lanes: Records, queue: Ints, units: Records, places: Records,
    ends: Floats, found: Ints, count: int, now: float, start_s: Floats,
) -> None:  # fmt: skip
    """Let each unit found start the head of the first of its lanes that can."""
    for index in range(count):
        unit = units[found[index]]
        unit["is_found"] = 0
        task = _next_task(tasks, lanes, queue, unit)
        if task == NOTHING:
            _set_end(ends, found[index], np.inf)
        else:
            unit["running"] = task
            start_s[task] = now
            _set_end(ends, found[index], _start(tasks[task], unit, places[unit["place"]], now))


@_compiled
def _next_task(tasks: Records, lanes: Records, queue: Ints, unit: Any) -> int:
    for index in range(unit["first_lane"], unit["last_lane"]):
        lane = lanes[index]
        if lane["head"] < lane["last"]:
            task = queue[lane["head"]]
            if tasks[task]["missing"] == 0:
                lane["head"] += 1
                return int(task)
    return NOTHING


@_compiled
def _start(task: Any, unit: Any, place: Any, now: float) -> Any:
    """When a task that starts now will end, as things are."""
    if unit["is_compute"]:
        unit["remaining_s"] = task["seconds"]
        unit["since_s"] = now
        return now + task["seconds"] / place["rate"]
    if task["slows"] > 0:
        unit["load"] = task["slows"]
        place["is_reloaded"] = 1
    return now + task["seconds"]


@_compiled
def _change_rates(
    units: Records, places: Records, members: Ints, ends: Floats, found: Ints, count: int, now: float
) -> None:
    """Give compute units the rate that the load of their places leaves, and their tasks new ends."""
    for index in range(count):
        place = places[units[found[index]]["place"]]
        if not place["is_reloaded"]:
            continue
        place["is_reloaded"] = 0
        load = 0.0
        for member in range(place["first_unit"], place["last_unit"]):
            load += units[members[member]]["load"]
        rate, old_rate = 1.0 - min(load, MOST_LOAD), place["rate"]
        if rate == old_rate:
            continue
        place["rate"] = rate
        if place["compute_unit"] != NOTHING:
            _slow(units[place["compute_unit"]], place, old_rate, ends, now)


@_compiled
def _slow(unit: Any, place: Any, old_rate: float, ends: Floats, now: float) -> None:
    if unit["running"] != NOTHING:
        done_s = (now - unit["since_s"]) * old_rate
        unit["remaining_s"] = max(unit["remaining_s"] - done_s, 0.0)
        unit["since_s"] = now
        _set_end(ends, place["compute_unit"], now + unit["remaining_s"] / place["rate"])


@_compiled
def _end(
    tasks: Records, consumers: Ints, lanes: Records, queue: Ints, units: Records, places: Records,
    found: Ints, index: int, count: int,
) -> int:  # fmt: skip
    """End what a unit runs, and find the free units that can go on now; how many are found by then."""
    unit = units[found[index]]
    task = tasks[unit["running"]]
    unit["running"] = NOTHING
    if unit["load"] > 0:
        unit["load"] = 0.0
        places[unit["place"]]["is_reloaded"] = 1
    for each in range(task["first_consumer"], task["last_consumer"]):
        consumer = tasks[consumers[each]]
        consumer["missing"] -= 1
        if consumer["missing"] == 0:
            lane = lanes[consumer["lane"]]
            owner = units[lane["unit"]]
            is_free = owner["running"] == NOTHING and owner["is_found"] == 0
            if is_free and queue[lane["head"]] == consumers[each]:
                owner["is_found"] = 1
                found[count] = lane["unit"]
                count += 1
    return count


@_compiled
def _find_ended(units: Records, ends: Floats, found: Ints, stack: Ints) -> int:
    """How many units end first, all at the same time; they are the units found."""
    now, leaves, count, depth = ends[1], len(ends) // 2, 0, 1
    stack[0] = 1
    while depth:
        depth -= 1
        node = stack[depth]
        while node < leaves:
            node *= 2
            if ends[node] != now:
                node += 1
            elif ends[node + 1] == now:
                stack[depth] = node + 1
                depth += 1
        found[count] = node - leaves
        units[node - leaves]["is_found"] = 1
        count += 1
    return count


@_compiled
def _set_end(ends: Floats, unit: int, end_s: float) -> None:
    node = len(ends) // 2 + unit
    ends[node] = end_s
    while node > 1:
        least = min(ends[node], ends[node ^ 1])
        node >>= 1
        if ends[node] == least:
            return
        ends[node] = least


@njit(cache=True)
def consumers_of(first_input: Starts, inputs: Ints) -> tuple[Ints, Ints]:
    """The tasks that wait for each task: those of t are consumers[first[t] : first[t + 1]]."""
    tasks = len(first_input) - 1
    first = np.zeros(tasks + 2, np.int32)  # shifted by one, so that filling it ends in the right place
    for task in inputs:
        first[task + 2] += 1
    for task in range(tasks):
        first[task + 2] += first[task + 1]
    consumers = np.empty(len(inputs), np.int32)
    for consumer in range(tasks):
        for index in range(first_input[consumer], first_input[consumer + 1]):
            task = inputs[index]
            consumers[first[task + 1]] = consumer
            first[task + 1] += 1
    return first[:-1], consumers
