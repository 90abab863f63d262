"""Whether a table can be simulated at all."""

import numpy as np

from trainwright.errors import BadInput
from trainwright.program.table import COMPUTE, Table


def check(table: Table) -> None:
    """Raise if a duration is none; indices that contradict each other are our own mistake."""
    _check_durations(table)
    assert np.all((table.slows >= 0) & (table.slows <= 1)), "a share of the compute rate"
    assert np.all((table.inputs >= 0) & (table.inputs < len(table))), "inputs are tasks"
    assert np.array_equal(np.sort(table.queue), np.arange(len(table))), "every task is queued once"
    lanes = np.repeat(np.arange(len(table.lane_unit)), np.diff(table.first_queued))
    assert np.array_equal(table.lane[table.queue], lanes), "tasks are queued in their own lanes"
    changes = 1 + np.count_nonzero(np.diff(table.lane_unit))
    assert changes == max(len(np.unique(table.lane_unit)), 1), "lanes of one unit are neighbours"
    computing = table.unit_place[table.unit_kind == COMPUTE]
    assert len(np.unique(computing)) == len(computing), "a place has one compute unit at most"


def _check_durations(table: Table) -> None:
    wrong = np.flatnonzero(~(np.isfinite(table.seconds) & (table.seconds >= 0)))
    if len(wrong):
        label = table.labels[table.label[wrong[0]]]
        raise BadInput(
            "duration of " + label, float(table.seconds[wrong[0]]), "is not a number of seconds",
            "check the rates and bandwidths of the cluster",
        )  # fmt: skip
