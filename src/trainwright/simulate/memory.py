"""What a step holds in memory, exactly, from start to end."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainwright.program.table import CATEGORIES, FROM_THE_START, Floats
from trainwright.simulate.timeline import Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """When each buffer is held: from its start up to, not including, its end.

    So what is freed at an instant makes room for what is allocated then, and what is allocated and freed at
    the same instant, by tasks that take no time, never counts.
    """

    start_s: Floats
    end_s: Floats  # infinite if it is never freed


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """By place: the most bytes held at once, when first, and what they were."""

    peak_bytes: Floats
    peak_s: Floats
    category_bytes: Floats  # by place and category, at the peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Bytes of each category from each time on, on one place."""

    time_s: Floats
    category_bytes: Floats  # by category and time


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What the tasks of one label hold at a peak."""

    label: str
    category: str
    held_bytes: float
    buffers: int


def lifetimes(timeline: Timeline) -> Lifetimes:
    """When each buffer of a step is allocated and freed."""
    table = timeline.table
    start_s = np.append(timeline.start_s, 0.0)[table.buffer_from]
    assert FROM_THE_START == -1  # the entry after the last task
    end_s = np.full(len(start_s), np.inf)
    is_read = np.diff(table.first_reader) > 0
    if is_read.any():
        reads_s = timeline.end_s[table.readers]
        end_s[is_read] = np.maximum.reduceat(reads_s, table.first_reader[:-1][is_read])
    return Lifetimes(start_s=start_s, end_s=np.maximum(end_s, start_s))


def peaks(timeline: Timeline) -> Peaks:
    """The peak of each place."""
    table, lives = timeline.table, lifetimes(timeline)
    places = len(table.places)
    peak_s, categories = np.zeros(places), np.zeros((places, len(CATEGORIES)))
    for place, buffers in enumerate(_buffers_by_place(timeline)):
        sizes, category = table.buffer_bytes[buffers], table.buffer_category[buffers]
        start_s, end_s = lives.start_s[buffers], lives.end_s[buffers]
        peak_s[place] = _fullest_s(start_s, end_s, sizes)
        held = (start_s <= peak_s[place]) & (peak_s[place] < end_s)
        categories[place] = np.bincount(category[held], sizes[held], minlength=len(CATEGORIES))
    return Peaks(peak_bytes=categories.sum(axis=1), peak_s=peak_s, category_bytes=categories)


def curve(timeline: Timeline, place: int) -> Curve:
    """What a place holds over time."""
    table, lives = timeline.table, lifetimes(timeline)
    buffers = np.flatnonzero(table.buffer_place == place)
    freed = buffers[lives.end_s[buffers] < np.inf]
    changes_s = np.concatenate((lives.start_s[buffers], lives.end_s[freed]))
    time_s, index = np.unique(np.append(0.0, changes_s), return_inverse=True)
    category = table.buffer_category[np.append(buffers, freed)]
    sizes = np.append(table.buffer_bytes[buffers], -table.buffer_bytes[freed])
    changes = np.bincount(category * len(time_s) + index[1:], sizes, minlength=len(CATEGORIES) * len(time_s))
    held = changes.reshape(len(CATEGORIES), -1).cumsum(axis=1)
    return Curve(time_s=time_s, category_bytes=np.maximum(held, 0.0))


def holdings(timeline: Timeline, place: int, most: int = 10) -> tuple[Holding, ...]:
    """What holds most at a place's peak: labels of the tasks that allocated it, largest first."""
    table, lives = timeline.table, lifetimes(timeline)
    own = table.buffer_place == place
    peak_s = _fullest_s(lives.start_s[own], lives.end_s[own], table.buffer_bytes[own])
    held = np.flatnonzero(own & (lives.start_s <= peak_s) & (peak_s < lives.end_s))
    label = np.append(table.label, len(table.labels))[table.buffer_from[held]]
    keys, index = np.unique(label * len(CATEGORIES) + table.buffer_category[held], return_inverse=True)
    sums, counts = np.bincount(index, table.buffer_bytes[held]), np.bincount(index)
    names = (*table.labels, "before the step")
    return tuple(
        Holding(
            label=names[keys[each] // len(CATEGORIES)], category=CATEGORIES[keys[each] % len(CATEGORIES)],
            held_bytes=float(sums[each]), buffers=int(counts[each]),
        )
        for each in np.argsort(-sums, kind="stable")[:most]
    )  # fmt: skip


def _buffers_by_place(timeline: Timeline) -> list[NDArray[np.intp]]:
    place = timeline.table.buffer_place
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(timeline.table.places) + 1))
    return [order[a:b] for a, b in pairwise(bounds.tolist())]


def _fullest_s(start_s: Floats, end_s: Floats, sizes: Floats) -> float:
    """When most is held: the first such time; 0 if nothing ever is."""
    if not len(sizes):
        return 0.0
    starts, ends = np.argsort(start_s, kind="stable"), np.argsort(end_s, kind="stable")
    allocated = np.cumsum(sizes[starts])
    freed = np.append(0.0, np.cumsum(sizes[ends]))
    held = allocated - freed[np.searchsorted(end_s[ends], start_s[starts], side="right")]
    last = np.append(start_s[starts][1:] > start_s[starts][:-1], True)  # after all allocations of an instant
    return float(start_s[starts][last][np.argmax(held[last])])
