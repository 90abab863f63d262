"""Timelines of which only the spans are known: measured ones, and those that were saved as traces."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainwright.program.table import ONCE, Table
from trainwright.simulate.timeline import Timeline


class Spot(NamedTuple):
    """A unit: its place, and what kind it is."""

    place: int
    kind: int


class Span(NamedTuple):
    """What a unit did, from when to when."""

    unit: int
    label: str
    cause: str
    start_s: float
    end_s: float
    microbatch: int = ONCE


def build_timeline(
    spans: Sequence[Span], units: Sequence[Spot], places: Sequence[tuple[int, ...]], step_s: float
) -> Timeline:
    """The timeline of some spans; nothing is known of what waited for what, or was held in memory."""
    names: dict[tuple[str, str], int] = {}
    label = [names.setdefault((each.label, each.cause), len(names)) for each in spans]
    unit = np.array([each.unit for each in spans], np.int32)
    start_s, end_s = (
        np.array([getattr(each, name) for each in spans], float) for name in ("start_s", "end_s")
    )
    nothing, none = np.zeros(0, np.int32), np.zeros(1, np.int64)
    table = Table(
        seconds=end_s - start_s, slows=np.zeros(len(spans)), lane=unit, label=np.array(label, np.int32),
        microbatch=np.array([each.microbatch for each in spans], np.int32),
        first_input=np.zeros(len(spans) + 1, np.int64), inputs=nothing,
        first_queued=np.append(0, np.cumsum(np.bincount(unit, minlength=len(units)))).astype(np.int64),
        queue=np.lexsort((start_s, unit)).astype(np.int32),
        lane_unit=np.arange(len(units), dtype=np.int32),
        unit_place=np.array([each.place for each in units], np.int32),
        unit_kind=np.array([each.kind for each in units], np.int32),
        buffer_place=nothing, buffer_bytes=np.zeros(0), buffer_category=nothing, buffer_from=nothing,
        first_reader=none, readers=nothing, labels=tuple(label for label, _ in names),
        causes=tuple(cause for _, cause in names), places=tuple(places),
    )  # fmt: skip
    return Timeline(table=table, start_s=start_s, end_s=end_s, step_s=step_s)
