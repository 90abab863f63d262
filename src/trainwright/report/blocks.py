"""A timeline reduced to what a screen can show: blocks of like work, lane by lane, and memory over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainwright.program.table import CATEGORIES, ONCE, Floats, Ints
from trainwright.report.drawing import CELLS, cell_of, render_devices
from trainwright.simulate.memory import curve
from trainwright.simulate.timeline import IDLE, Pieces, Timeline, all_pieces

_MOST_PLACES = 16
_MOST_BLOCKS = 12_000
_MOST_MOMENTS = 240  # of a curve of memory
_FINEST = 4_000  # parts of a step: what is closer together than one of them is one block
_SHORTEST = 40_000  # likewise: a shorter block is not seen
_DIGITS = 5  # of numbers that are only drawn
_EXPOSED = "x"  # the cell of communication that nothing hides, whatever its cause
_ORDER = (*CELLS, _EXPOSED)
_MEANINGS = {**CELLS, _EXPOSED: "exposed communication"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Like work that follows without a pause is one block: its lane, cell, microbatch, start and end.

    `cells` says what each cell means; a microbatch of -1 is work that is done once a step.
    """

    step_s: float
    places: tuple[str, ...]
    hidden: int  # places that are not shown
    lanes: tuple[tuple[int, str], ...]  # place and name: compute, what is communicated, what of it is exposed
    lane: tuple[int, ...]
    cell: tuple[str, ...]
    microbatch: tuple[int, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    busy: tuple[float, ...]  # share of the block in which it is worked on
    cells: dict[str, str]
    merged: int  # tasks that the blocks stand for
    memory: tuple["Held", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes by category on one place, from each time on."""

    place: int
    time_s: tuple[float, ...]
    category_bytes: dict[str, tuple[float, ...]]


class _Work(NamedTuple):
    """What a lane ran, in order of starts."""

    cell: Ints
    microbatch: Ints
    start_s: Floats
    end_s: Floats


class _Lane(NamedTuple):
    """The blocks of one lane, in order."""

    place: int
    name: str
    tasks: int  # that they stand for
    cell: list[int]
    microbatch: list[int]
    start_s: list[float]
    end_s: list[float]
    busy: list[float]


def blocks_of(timeline: Timeline, most_places: int = _MOST_PLACES) -> Blocks:
    """Blocks of at most so many places, spread evenly over all; coarser where there would be too many."""
    table = timeline.table
    count = len(table.places)
    shown = np.unique(np.linspace(0, count - 1, min(most_places, count)).round().astype(int)).tolist()
    lanes = _few_lanes(timeline, shown)
    cells = [_ORDER[each] for lane in lanes for each in lane.cell]
    return Blocks(
        step_s=timeline.step_s, places=tuple(render_devices(table.places[each]) for each in shown),
        hidden=count - len(shown), lanes=tuple((each.place, each.name) for each in lanes),
        lane=tuple(number for number, lane in enumerate(lanes) for _ in lane.cell), cell=tuple(cells),
        microbatch=tuple(each for lane in lanes for each in lane.microbatch),
        start_s=tuple(each for lane in lanes for each in lane.start_s),
        end_s=tuple(each for lane in lanes for each in lane.end_s),
        busy=tuple(each for lane in lanes for each in lane.busy),
        cells={each: _MEANINGS[each] for each in _ORDER if each in set(cells)},
        merged=sum(each.tasks for each in lanes if each.name != "exposed"),
        memory=tuple(_held(timeline, number, place) for number, place in enumerate(shown)),
    )  # fmt: skip


def _few_lanes(timeline: Timeline, shown: Sequence[int]) -> list[_Lane]:
    """Lanes with no more blocks than can be drawn.

    First longer pauses are bridged, then all of backward is one, then the shortest are left out.
    """
    pieces = {place: each for place, each in enumerate(all_pieces(timeline)) if place in shown}
    pauses_s = [timeline.step_s / _FINEST * 4**power for power in range(4)]
    for pause_s, rough in [*((each, False) for each in pauses_s), *((each, True) for each in pauses_s)]:
        lanes = _lanes(timeline, pieces, pause_s, rough)
        if sum(len(each.cell) for each in lanes) <= _MOST_BLOCKS:
            return lanes
    lengths_s = np.concatenate([np.subtract(each.end_s, each.start_s) for each in lanes])
    kept = np.zeros(len(lengths_s), bool)
    kept[np.argsort(-lengths_s, kind="stable")[:_MOST_BLOCKS]] = True
    ends = np.cumsum([len(each.cell) for each in lanes])[:-1]
    return [_kept(lane, mask) for lane, mask in zip(lanes, np.split(kept, ends), strict=True)]


def _kept(lane: _Lane, mask: NDArray[np.bool_]) -> _Lane:
    """Some blocks of a lane."""
    numbers = np.flatnonzero(mask).tolist()
    return lane._replace(
        cell=[lane.cell[each] for each in numbers], microbatch=[lane.microbatch[each] for each in numbers],
        start_s=[lane.start_s[each] for each in numbers], end_s=[lane.end_s[each] for each in numbers],
        busy=[lane.busy[each] for each in numbers],
    )  # fmt: skip


def _lanes(timeline: Timeline, pieces: Mapping[int, Pieces], pause_s: float, rough: bool) -> list[_Lane]:
    """Of each place its compute, what it communicates, a lane for each cause, and what of that is exposed.

    Communication that holds up the compute unit is in the lane of its cause, too.
    """
    cell = _cells(timeline, rough)
    place = timeline.table.unit_place[timeline.table.lane_unit[timeline.table.lane]]
    talks = np.isin(cell, [_ORDER.index(each) for each in CELLS if each.islower()])
    lanes = []
    for number, each in enumerate(pieces):
        mine, others = (np.flatnonzero((place == each) & kind) for kind in (~talks, talks))
        parts = [("compute", mine)]
        parts += [(_ORDER[code], others[cell[others] == code]) for code in np.unique(cell[others])]
        works = [(CELLS.get(name, name), _work(timeline, tasks, cell)) for name, tasks in parts]
        works += [("exposed", _exposed(pieces[each], talks))] if len(others) else []
        lanes += [_lane((number, name), work, timeline.step_s, pause_s) for name, work in works]
    return lanes


def _cells(timeline: Timeline, rough: bool) -> Ints:
    """What each task is drawn as; roughly, all of backward is one."""
    table = timeline.table
    pairs = zip(table.labels, table.causes, strict=True)
    cell = np.array([_ORDER.index(cell_of(label, cause)) for label, cause in pairs], np.int32)[table.label]
    if rough:
        cell[np.isin(cell, [_ORDER.index(each) for each in "IWR"])] = _ORDER.index("B")
    return cell


def _work(timeline: Timeline, tasks: NDArray[np.intp], cell: Ints) -> _Work:
    """Some tasks."""
    tasks = tasks[np.argsort(timeline.start_s[tasks], kind="stable")]
    return _Work(
        cell[tasks], timeline.table.microbatch[tasks], timeline.start_s[tasks], timeline.end_s[tasks]
    )


def _exposed(pieces: Pieces, talks: NDArray[np.bool_]) -> _Work:
    """The pieces of a place in which it only communicates."""
    chosen = np.flatnonzero((pieces.task != IDLE) & talks[pieces.task])
    cell, once = np.full(len(chosen), _ORDER.index(_EXPOSED), np.int32), np.full(len(chosen), ONCE, np.int32)
    return _Work(cell, once, pieces.edges_s[chosen], pieces.edges_s[chosen + 1])


def _lane(at: tuple[int, str], work: _Work, step_s: float, pause_s: float) -> _Lane:
    """The blocks of some work; those too short to be seen are left out."""
    start_s, end_s = work.start_s, np.maximum.accumulate(work.end_s)
    new = np.ones(len(start_s), bool)
    new[1:] = (np.diff(work.cell) != 0) | (np.diff(work.microbatch) != 0)
    new[1:] |= start_s[1:] - end_s[:-1] > pause_s
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start_s))[: len(first)] - 1
    worked_s = np.append(0.0, np.cumsum(work.end_s - start_s))
    length_s = end_s[last] - start_s[first]
    seen = length_s > step_s / _SHORTEST
    first, last, length_s = first[seen], last[seen], length_s[seen]
    busy = np.minimum((worked_s[last + 1] - worked_s[first]) / length_s, 1.0)
    return _Lane(
        place=at[0], name=at[1], tasks=len(start_s), cell=work.cell[first].tolist(),
        microbatch=work.microbatch[first].tolist(), start_s=_drawn(start_s[first], step_s),
        end_s=_drawn(end_s[last], step_s), busy=[float(each) for each in np.round(busy, 2)],
    )  # fmt: skip


def _held(timeline: Timeline, number: int, place: int) -> Held:
    """The curve of a place, at so many moments that each shows the most held until the next."""
    held = curve(timeline, place)
    edges_s = np.linspace(0.0, timeline.step_s, _MOST_MOMENTS)
    total: Floats = held.category_bytes.sum(axis=0)
    starts = np.minimum(np.searchsorted(held.time_s, edges_s, side="right") - 1, len(held.time_s) - 1)
    chosen = [_fullest(total, a, b) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    parts = held.category_bytes[:, chosen]
    return Held(
        place=number, time_s=tuple(_drawn(edges_s[:-1], timeline.step_s)),
        category_bytes={
            name: tuple(_drawn(row, row.max()))
            for name, row in zip(CATEGORIES, parts, strict=True)
            if row.any()
        },
    )  # fmt: skip


def _fullest(total: Floats, first: int, last: int) -> int:
    return first + int(np.argmax(total[first : last + 1]))


def _drawn(values: Floats, largest: float) -> list[float]:
    """Numbers with as many digits as a screen can show."""
    digits = _DIGITS - int(np.floor(np.log10(largest))) if largest > 0 else _DIGITS
    return [float(each) for each in np.round(values, digits).tolist()]
