"""A round of islands, event by event: steps that follow each other, and meetings beside or between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.program.meetings import Meeting
from trainwright.program.table import COMMUNICATION, COMPUTE, ONCE, Table
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

STEPS, SYNC = "steps", "sync"  # causes: steps that are not shown task by task; meetings
_ROUNDS = 3  # that are played where meetings reach into the next round; the later ones are alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """When the steps and meetings of a round run.

    The timeline is of one round, or of several where meetings run beside the steps of the next one; its last
    step is there task by task. `round_s` is the time of one round among many.
    """

    timeline: Timeline
    round_s: float


def simulate_round(step: Timeline, every: int, meetings: Sequence[Meeting]) -> Round:
    """A round of so many steps, each of which goes as `step` does, and its meetings."""
    rounds = _ROUNDS if any(each.delay for each in meetings) else 1
    timeline = simulate(_table(step, every, meetings, rounds))
    if rounds == 1:
        return Round(timeline=timeline, round_s=timeline.step_s)
    less = simulate(_table(step, every, meetings, rounds - 1))
    return Round(timeline=timeline, round_s=timeline.step_s - less.step_s)


@dataclass(slots=True)
class _Rows:
    """Tasks beside those of the step that is shown: where they queue, and what they wait for."""

    seconds: list[float] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)
    labels: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[list[int]] = field(default_factory=list)
    early: list[bool] = field(default_factory=list)  # whether it queues before the step that is shown

    def add(
        self, lane: int, label: tuple[str, str], seconds: float, inputs: list[int], *, early: bool
    ) -> int:
        self.seconds.append(seconds)
        self.lanes.append(lane)
        self.labels.append(label)
        self.inputs.append(inputs)
        self.early.append(early)
        return len(self.seconds) - 1


def _table(step: Timeline, every: int, meetings: Sequence[Meeting], rounds: int) -> Table:
    """Runs of steps between the points at which a meeting starts or must have ended, and the meetings."""
    table, count = step.table, len(step.table)
    main = [_main_lane(table, place) for place in range(len(table.places))]
    links = [len(table.lane_unit) + place for place in range(len(table.places))]
    total, rows = rounds * every, _Rows()
    starts = [(each.after + number * every, each) for number in range(rounds) for each in meetings]
    cuts = {0, total - 1, total, *(at for at, _ in starts), *(at + each.delay for at, each in starts)}
    points = sorted(at for at in cuts if at <= total)
    pending: list[tuple[int, list[int], Meeting]] = []  # when it must have ended, its tasks
    last: list[int] = []  # the tasks that ended the steps until now
    for point, following in zip(points, [*points[1:], total], strict=True):
        for at, meeting in (each for each in starts if each[0] == point and point):
            tasks = [
                rows.add(lane, (f"meeting after {meeting.after}", SYNC), meeting.link_s, list(last),
                         early=point < total)
                for lane in links
            ]  # fmt: skip
            pending.append((at + meeting.delay, tasks, meeting))
        for due in [each for each in pending if each[0] <= point or point == total]:
            pending.remove(due)
            if due[0] <= point:
                last = [
                    rows.add(lane, (f"outer step after {due[2].after}", SYNC), due[2].apply_s,
                             [*last, *due[1]], early=point < total)
                    for lane in main
                ]  # fmt: skip
        if point == total - 1:
            shown, last = list(last), [-1]  # the step that is shown
        elif point < total:
            steps = following - point
            label = (f"{steps} steps" if steps > 1 else "a step", STEPS)
            last = [rows.add(lane, label, steps * step.step_s, list(last), early=True) for lane in main]
    return _joined(table, rows, shown, links, count)


def _main_lane(table: Table, place: int) -> int:
    """The first lane of a place's compute unit."""
    units = np.flatnonzero((table.unit_place == place) & (table.unit_kind == COMPUTE))
    return int(np.flatnonzero(table.lane_unit == units[0])[0])


def _joined(table: Table, rows: _Rows, shown: Sequence[int], links: Sequence[int], count: int) -> Table:
    """The tasks of a step with others before and after them."""
    names = list(dict.fromkeys(rows.labels))
    ends = np.setdiff1d(np.arange(count), table.inputs).tolist()  # what nothing waits for
    roots = np.flatnonzero(np.diff(table.first_input) == 0)
    inputs = [
        table.inputs[a:b].tolist() for a, b in zip(table.first_input, table.first_input[1:], strict=False)
    ]
    for root in roots:
        inputs[root] = [count + each for each in shown]
    for each in rows.inputs:
        inputs.append([t for one in each for t in (ends if one < 0 else [count + one])])
    queue = [
        table.queue[a:b].tolist() for a, b in zip(table.first_queued, table.first_queued[1:], strict=False)
    ] + [[] for _ in links]
    first: list[list[int]] = [[] for _ in queue]
    for number, (lane, early) in enumerate(zip(rows.lanes, rows.early, strict=True)):
        (first if early else queue)[lane].append(count + number)
    queues = [[*before, *after] for before, after in zip(first, queue, strict=True)]
    more = len(rows.seconds)
    base = len(table.labels)
    return replace(
        table,
        seconds=np.append(table.seconds, rows.seconds),
        slows=np.append(table.slows, np.zeros(more)),
        lane=_ints(table.lane, rows.lanes),
        label=_ints(table.label, [base + names.index(each) for each in rows.labels]),
        microbatch=_ints(table.microbatch, [ONCE] * more),
        first_input=_starts(inputs), inputs=_flat(inputs),
        first_queued=_starts(queues), queue=_flat(queues),
        lane_unit=_ints(table.lane_unit, [len(table.unit_place) + n for n in range(len(links))]),
        unit_place=_ints(table.unit_place, range(len(links))),
        unit_kind=_ints(table.unit_kind, [COMMUNICATION] * len(links)),
        labels=(*table.labels, *(label for label, _ in names)),
        causes=(*table.causes, *(cause for _, cause in names)),
    )  # fmt: skip


def _ints(one: NDArray[np.int32], more: Sequence[int]) -> NDArray[np.int32]:
    return np.append(one, np.array(more, np.int32)).astype(np.int32)


def _starts(listed: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum([len(each) for each in listed])]).astype(np.int64)


def _flat(listed: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.array([task for each in listed for task in each], dtype=np.int32)
