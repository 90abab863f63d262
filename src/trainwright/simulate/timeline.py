"""When every task of a step ran, predicted or measured."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainwright.program.table import COMPUTE, Floats, Ints, Table

COMMUNICATION_CAUSES = ("tp", "cp", "ep", "pp", "dp", "offload", "sync")
IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Starts and ends by task, from the start of the step on, and how long the step took."""

    table: Table
    start_s: Floats
    end_s: Floats
    step_s: float

    def __post_init__(self) -> None:
        assert len(self.table) == len(self.start_s) == len(self.end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A place's step cut at every start and end; each piece is charged to one task, or it is idle.

    It is charged to the task on the compute unit; if that is idle, to the first of the other units that runs
    something. Tasks that a measurement saw overlap on one unit are cut to follow one another.
    """

    edges_s: Floats  # one more than pieces; the first is 0, the last the step
    task: Ints  # by piece, or IDLE


def tasks_of_units(timeline: Timeline) -> list[Ints]:
    """What each unit ran, in order of starts."""
    table = timeline.table
    result = []
    for unit in range(len(table.unit_place)):
        lanes = np.flatnonzero(table.lane_unit == unit)
        first, last = (lanes[0], lanes[-1] + 1) if len(lanes) else (0, 0)
        tasks = table.queue[table.first_queued[first] : table.first_queued[last]]
        result.append(tasks[np.argsort(timeline.start_s[tasks], kind="stable")])
    return result


def all_pieces(timeline: Timeline) -> Iterator[Pieces]:
    """The pieces of each place."""
    table, ran = timeline.table, tasks_of_units(timeline)
    by_importance = np.argsort(table.unit_kind != COMPUTE, kind="stable")
    for place in range(len(table.places)):
        units = by_importance[table.unit_place[by_importance] == place]
        yield _pieces(timeline, [ran[unit] for unit in units])


def _pieces(timeline: Timeline, ran: list[Ints]) -> Pieces:
    """Of a place, given what its units ran, in order, the most important unit first."""
    tasks = np.concatenate([np.empty(0, np.int32), *ran])
    times = (timeline.start_s[tasks], timeline.end_s[tasks], np.array([0.0, timeline.step_s]))
    edges_s = np.unique(np.concatenate(times))
    charged = np.full(max(len(edges_s) - 1, 0), IDLE, np.int32)
    for each in ran:
        running = _running(timeline, each, edges_s)
        charged = np.where(charged == IDLE, running, charged)
    return Pieces(edges_s=edges_s, task=charged)


def _running(timeline: Timeline, ran: Ints, edges_s: Floats) -> Ints:
    """By piece, what one unit runs."""
    ends = np.maximum.accumulate(np.searchsorted(edges_s, timeline.end_s[ran]))
    starts = np.searchsorted(edges_s, timeline.start_s[ran])
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    lengths = np.diff(np.column_stack((starts, ends)).ravel(), prepend=0, append=len(edges_s) - 1)
    values = np.full(len(lengths), IDLE, np.int32)
    values[1::2] = ran
    return np.repeat(values, lengths)
