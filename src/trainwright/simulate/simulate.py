"""The prediction of a step, task by task."""

import numpy as np

from trainwright.program.table import Table
from trainwright.simulate.check import check
from trainwright.simulate.deadlock import Deadlock, find_cycle
from trainwright.simulate.engine import run
from trainwright.simulate.timeline import Timeline


def simulate(table: Table) -> Timeline:
    """When each task of a step starts and ends; raises `Deadlock` if some wait for each other."""
    check(table)
    start_s, end_s = run(table)
    if np.isnan(end_s).any():
        raise Deadlock(table, find_cycle(table, end_s))
    return Timeline(table=table, start_s=start_s, end_s=end_s, step_s=float(end_s.max(initial=0.0)))
