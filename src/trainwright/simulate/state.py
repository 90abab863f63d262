"""What the event loop reads and writes: records of tasks, lanes, units and places."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainwright.program.table import COMPUTE, Floats, Ints, Table

Records = NDArray[Any]
NOTHING = -1
DEEPEST = 64  # levels of the tree of ends, and more

TASK = np.dtype(
    [
        ("seconds", "f8"), ("slows", "f8"), ("lane", "i4"), ("missing", "i4"),  # inputs that have not ended
        ("first_consumer", "i4"), ("last_consumer", "i4"),
    ]
)  # fmt: skip
LANE = np.dtype([("unit", "i4"), ("head", "i4"), ("last", "i4")])  # head and last: into the queue
UNIT = np.dtype(
    [
        ("place", "i4"), ("first_lane", "i4"), ("last_lane", "i4"), ("is_compute", "i4"),
        ("running", "i4"), ("is_found", "i4"),  # a task or NOTHING; whether it is among the units found
        ("load", "f8"),  # how much its task slows compute on its place
        ("remaining_s", "f8"), ("since_s", "f8"),  # work at full rate that was left then
    ]
)  # fmt: skip
PLACE = np.dtype(
    [
        ("first_unit", "i4"), ("last_unit", "i4"), ("compute_unit", "i4"),  # or NOTHING
        ("is_reloaded", "i4"),  # whether the load of one of its units has changed
        ("rate", "f8"),  # of its compute unit
    ]
)  # fmt: skip


class State(NamedTuple):
    """All of it. `ends` is a tree of minima over units: the root is 1, node n has children 2n and 2n + 1."""

    tasks: Records
    consumers: Ints
    lanes: Records
    queue: Ints
    units: Records
    places: Records
    members: Ints  # units by place
    ends: Floats
    found: Ints  # units to be looked at in this round
    stack: Ints


def build_state(table: Table, first_consumer: Ints, consumers: Ints) -> State:
    """The state before the first event, given who waits for each task."""
    units = len(table.unit_place)
    return State(
        tasks=_tasks(table, first_consumer),
        consumers=consumers,
        lanes=_records(LANE, unit=table.lane_unit, head=table.first_queued[:-1], last=table.first_queued[1:]),
        queue=np.array(table.queue, np.int32),
        units=_units(table),
        places=_places(table),
        members=np.argsort(table.unit_place, kind="stable").astype(np.int32),
        ends=np.full(2 << max(units - 1, 1).bit_length(), np.inf),
        found=np.arange(units, dtype=np.int32),
        stack=np.zeros(DEEPEST, np.int32),
    )


def _tasks(table: Table, first_consumer: Ints) -> Records:
    return _records(
        TASK, seconds=table.seconds, slows=table.slows, lane=table.lane, missing=np.diff(table.first_input),
        first_consumer=first_consumer[:-1], last_consumer=first_consumer[1:],
    )  # fmt: skip


def _units(table: Table) -> Records:
    lanes = np.bincount(table.lane_unit, minlength=len(table.unit_place))
    first_lane = np.zeros_like(lanes)
    first_lane[table.lane_unit[::-1]] = np.arange(len(table.lane_unit))[::-1]
    return _records(
        UNIT, place=table.unit_place, first_lane=first_lane, last_lane=first_lane + lanes,
        is_compute=table.unit_kind == COMPUTE, running=NOTHING, is_found=1,
        load=0.0, remaining_s=0.0, since_s=0.0,
    )  # fmt: skip


def _places(table: Table) -> Records:
    units = np.bincount(table.unit_place, minlength=len(table.places))
    is_compute = table.unit_kind == COMPUTE
    compute_unit = np.full(len(units), NOTHING)
    compute_unit[table.unit_place[is_compute]] = np.flatnonzero(is_compute)
    return _records(
        PLACE, first_unit=np.cumsum(units) - units, last_unit=np.cumsum(units), compute_unit=compute_unit,
        is_reloaded=0, rate=1.0,
    )  # fmt: skip


def _records(kind: np.dtype[Any], **columns: Any) -> Records:
    """Records of one kind, by column; one that is a number is the same in all."""
    length = next(len(each) for each in columns.values())
    result = np.empty(length, kind)
    for name, each in columns.items():
        result[name] = each
    return result
