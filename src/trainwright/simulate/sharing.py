"""Devices that share cores: while more of them compute than there are cores, each is slower."""

from dataclasses import replace

import numpy as np

from trainwright.program.table import COMPUTE
from trainwright.simulate.timeline import Timeline


def share_cores(timeline: Timeline, at_once: int) -> Timeline:
    """The timeline stretched where more than `at_once` devices compute: n of them take n/at_once as long.

    The order of tasks stays; what waits or travels meanwhile is stretched with them.
    """
    table = timeline.table
    if at_once < 1 or sum(map(len, table.places)) <= at_once or not len(table):
        return timeline
    unit = table.lane_unit[table.lane]
    computes = (table.unit_kind[unit] == COMPUTE) & (timeline.end_s > timeline.start_s)
    devices = np.array([len(each) for each in table.places])[table.unit_place[unit[computes]]]
    at_s = np.concatenate([timeline.start_s[computes], timeline.end_s[computes]])
    order = np.argsort(at_s, kind="stable")
    edges_s = np.concatenate([[0.0], at_s[order], [timeline.step_s]])
    active = np.concatenate([[0], np.cumsum(np.concatenate([devices, -devices])[order])])
    long_s = np.diff(edges_s) * np.maximum(active / at_once, 1.0)
    ends_s = np.concatenate([[0.0], np.cumsum(long_s)])
    start_s, end_s = (np.interp(each, edges_s, ends_s) for each in (timeline.start_s, timeline.end_s))
    return replace(timeline, start_s=start_s, end_s=end_s, step_s=float(ends_s[-1]))
