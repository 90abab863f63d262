"""What a step waits for: its critical path, and how much shorter it would be if a part were free."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.program.table import Floats, Ints
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline, tasks_of_units

WAITING = "waiting"  # on a path: nothing that the task waited for was still running


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """Tasks from the start of the step to its end, each of which started when the one before it ended.

    The parts of `cause_s`, with what passed between tasks as `waiting`, add up to the end of the last one.
    """

    tasks: tuple[int, ...]
    cause_s: Mapping[str, float]
    label_s: Mapping[str, float]  # most first


@dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A step in which the tasks of one cause, or of one label, take no time."""

    what: str
    is_cause: bool
    step_s: float
    gain_s: float


def critical_path(timeline: Timeline) -> CriticalPath:
    """The path that ends with the last task: back from it, always to what ended last before it started.

    That is one of its inputs, or what ran before it in its lane or on its unit.
    """
    if not len(timeline.table):
        return CriticalPath(tasks=(), cause_s={}, label_s={})
    tasks = _walk_back(timeline)[::-1]
    table = timeline.table
    starts, ends = timeline.start_s[tasks], timeline.end_s[tasks]
    spent = ends - starts
    label = table.label[tasks]
    label_s = _sums([table.labels[each] for each in label], spent)
    cause_s = _sums([table.causes[each] for each in label], spent)
    waited_s = float((starts - np.append(0.0, ends[:-1])).sum())
    if waited_s > 0:
        cause_s[WAITING] = waited_s
    return CriticalPath(tasks=tuple(tasks.tolist()), cause_s=cause_s, label_s=label_s)


def free_causes(timeline: Timeline, labels: int = 5) -> tuple[Freed, ...]:
    """What each cause, and the labels with most time on the critical path, would save; most first."""
    table, before_s = timeline.table, simulate(timeline.table).step_s
    path = critical_path(timeline)
    causes, names = np.array(table.causes), np.array(table.labels)
    masks = [(cause, True, causes == cause) for cause in dict.fromkeys(table.causes)]
    masks += [(label, False, names == label) for label in list(path.label_s)[:labels]]
    result = []
    for what, is_cause, mask in masks:
        step_s = _step_without(timeline, mask[table.label])
        result.append(Freed(what=what, is_cause=is_cause, step_s=step_s, gain_s=before_s - step_s))
    return tuple(sorted(result, key=lambda each: (not each.is_cause, -each.gain_s)))


def _step_without(timeline: Timeline, free: NDArray[np.bool_]) -> float:
    table = timeline.table
    return simulate(replace(table, seconds=np.where(free, 0.0, table.seconds))).step_s


def _walk_back(timeline: Timeline) -> Ints:
    """The tasks of the path, last first.

    Of what ran on its unit, only tasks that started strictly before can have kept a task waiting: it cannot
    have waited for one of no length that started at the same time, unless that is an input or in its lane.
    """
    table = timeline.table
    in_lane = np.full(len(table), -1, np.int32)
    in_lane[table.queue[1:]] = np.where(
        table.lane[table.queue[1:]] == table.lane[table.queue[:-1]], table.queue[:-1], -1
    )
    on_unit = _latest_before(timeline)
    path = [int(np.argmax(timeline.end_s))]
    while True:
        task = path[-1]
        inputs = table.inputs[table.first_input[task] : table.first_input[task + 1]]
        before = [each for each in (*inputs.tolist(), int(in_lane[task]), int(on_unit[task])) if each >= 0]
        if not before:
            return np.array(path, np.int32)
        path.append(max(before, key=timeline.end_s.__getitem__))


def _latest_before(timeline: Timeline) -> Ints:
    """Of each task, which of those that started before it on its unit ended last; or -1."""
    result = np.full(len(timeline.table), -1, np.int32)
    for ran in tasks_of_units(timeline):
        start_s, end_s = timeline.start_s[ran], timeline.end_s[ran]
        is_latest = end_s >= np.maximum.accumulate(end_s)
        latest = np.maximum.accumulate(np.where(is_latest, np.arange(len(ran)), 0))
        earlier = np.searchsorted(start_s, start_s)  # how many started before
        result[ran] = np.where(earlier > 0, ran[latest[earlier - 1]], -1)
    return result


def _sums(names: list[str], seconds: Floats) -> dict[str, float]:
    """Seconds by name, most first."""
    sums: dict[str, float] = {}
    for name, each in zip(names, seconds.tolist(), strict=True):
        sums[name] = sums.get(name, 0.0) + each
    return dict(sorted(sums.items(), key=lambda item: -item[1]))
