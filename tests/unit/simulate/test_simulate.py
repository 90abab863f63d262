"""Steps that can be simulated, and those that cannot."""

from dataclasses import replace

import numpy as np
import pytest

from tests.tables import Entry, build_table
from trainwright.errors import BadInput
from trainwright.program.table import COMPUTE
from trainwright.simulate.deadlock import Deadlock
from trainwright.simulate.simulate import simulate

TWO_PLACES = ((0, COMPUTE), (1, COMPUTE))


def test_a_step_ends_with_its_last_task() -> None:
    timeline = simulate(build_table([Entry(seconds=2.0), Entry(seconds=1.0)]))
    assert timeline.step_s == 3.0


def test_a_step_without_tasks_takes_no_time() -> None:
    assert simulate(build_table([])).step_s == 0.0


def test_a_deadlock_is_reported_as_the_cycle_that_causes_it() -> None:
    # Device 0 runs "a" before "b", device 1 "c" before "d"; a needs d, and c needs b.
    entries = [
        Entry(label="a F", seconds=1.0, microbatch=0, inputs=[3]),
        Entry(label="b F", seconds=1.0, microbatch=1),
        Entry(label="c F", seconds=1.0, microbatch=0, inputs=[1], lane=1),
        Entry(label="d F", seconds=1.0, microbatch=1, lane=1),
    ]
    cycle = (
        '"a F of microbatch 0 on device 0": it waits for d F of microbatch 1 on device 1, '
        "that for c F of microbatch 0 on device 1, that for b F of microbatch 1 on device 0, that for a F"
    )
    with pytest.raises(Deadlock, match=cycle) as caught:
        simulate(build_table(entries, lanes=(0, 1), units=TWO_PLACES))
    assert len(caught.value.cycle) == 4


def test_a_task_that_waits_for_itself_is_a_deadlock() -> None:
    with pytest.raises(Deadlock, match="it waits for layer F on device 0; change the order"):
        simulate(build_table([Entry(seconds=1.0, inputs=[0])]))


@pytest.mark.parametrize("seconds", [np.nan, np.inf, -1.0])
def test_a_duration_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match=r"duration of layer F .*: is not a number of seconds"):
        simulate(build_table([Entry(seconds=seconds)]))


def test_a_table_that_queues_a_task_twice_is_our_mistake() -> None:
    table = build_table([Entry(seconds=1.0), Entry(seconds=1.0)])
    with pytest.raises(AssertionError, match="every task is queued once"):
        simulate(replace(table, queue=np.zeros(2, np.int32)))


def test_a_place_with_two_compute_units_is_our_mistake() -> None:
    table = build_table([Entry(seconds=1.0)], lanes=(0,), units=((0, COMPUTE), (0, COMPUTE)))
    with pytest.raises(AssertionError, match="one compute unit at most"):
        simulate(table)
