"""When tasks run: lanes, inputs, contention, tasks of no length. Both implementations, by hand."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.tables import Entry, build_table
from trainwright.program.table import COMMUNICATION, COMPUTE, COPY, Floats, Table
from trainwright.simulate import engine, reference

Run = Callable[[Table], tuple[Floats, Floats]]
both = pytest.mark.parametrize("run", [engine.run, reference.run], ids=["engine", "reference"])
TWO_UNITS = ((0, COMPUTE), (0, COMMUNICATION))


@both
def test_tasks_of_a_lane_run_one_after_another(run: Run) -> None:
    start_s, end_s = run(build_table([Entry(seconds=2.0), Entry(seconds=1.0)]))
    assert start_s.tolist() == [0.0, 2.0]
    assert end_s.tolist() == [2.0, 3.0]


@both
def test_a_task_waits_for_its_inputs_on_other_units(run: Run) -> None:
    entries = [Entry(seconds=2.0), Entry(seconds=1.0, lane=1, inputs=[0])]
    start_s, _ = run(build_table(entries, lanes=(0, 1), units=TWO_UNITS))
    assert start_s.tolist() == [0.0, 2.0]


@both
def test_the_head_of_a_lane_holds_up_those_behind_it_but_not_other_lanes(run: Run) -> None:
    # Lane 1 starts with task 1, which waits for task 0 until 2 s; task 2 is behind it; task 3 is in lane 2.
    entries = [
        Entry(seconds=2.0),
        Entry(seconds=1.0, lane=1, inputs=[0]),
        Entry(seconds=1.0, lane=1),
        Entry(seconds=1.5, lane=2),
    ]
    start_s, _ = run(build_table(entries, lanes=(0, 1, 1), units=TWO_UNITS))
    assert start_s.tolist() == [0.0, 2.0, 3.0, 0.0]


@both
def test_of_two_lanes_that_can_go_on_the_first_does(run: Run) -> None:
    entries = [Entry(seconds=1.0, lane=1), Entry(seconds=1.0, lane=0), Entry(seconds=1.0, lane=0)]
    start_s, _ = run(build_table(entries, lanes=(0, 0)))
    assert start_s.tolist() == [2.0, 0.0, 1.0]


@both
def test_what_ends_at_the_same_time_ends_before_anything_starts(run: Run) -> None:
    # At 1 s both units end. Lane 1 of the second unit waits for task 0, and goes before lane 2.
    entries = [
        Entry(seconds=1.0),
        Entry(seconds=1.0, lane=2),
        Entry(seconds=1.0, lane=2),
        Entry(seconds=1.0, lane=1, inputs=[0]),
    ]
    start_s, _ = run(build_table(entries, lanes=(0, 1, 1), units=TWO_UNITS))
    assert start_s.tolist() == [0.0, 0.0, 2.0, 1.0]


@both
def test_tasks_of_no_length_pass_in_no_time(run: Run) -> None:
    entries = [Entry(seconds=0.0), Entry(seconds=0.0, lane=1, inputs=[0]), Entry(seconds=1.0, inputs=[1])]
    start_s, end_s = run(build_table(entries, lanes=(0, 1), units=TWO_UNITS))
    assert start_s.tolist() == [0.0, 0.0, 0.0]
    assert end_s.tolist() == [0.0, 0.0, 1.0]


@both
def test_communication_slows_compute_while_it_runs(run: Run) -> None:
    # 1 s at half rate does 0.5 of 2 s of work; the other 1.5 s follow at full rate.
    entries = [Entry(seconds=2.0), Entry(seconds=1.0, lane=1, slows=0.5)]
    _, end_s = run(build_table(entries, lanes=(0, 1), units=TWO_UNITS))
    assert end_s.tolist() == [2.5, 1.0]


@both
def test_compute_that_starts_beside_communication_is_slow_from_the_start(run: Run) -> None:
    # From 1 s on: 2 s at half rate, until 3 s.
    entries = [Entry(seconds=1.0), Entry(seconds=1.0), Entry(seconds=9.0, lane=1, slows=0.5, inputs=[0])]
    _, end_s = run(build_table(entries, lanes=(0, 1), units=TWO_UNITS))
    assert end_s.tolist() == [1.0, 3.0, 10.0]


@both
def test_compute_never_loses_more_than_nine_tenths_of_its_rate(run: Run) -> None:
    entries = [
        Entry(seconds=1.0),
        Entry(seconds=20.0, lane=1, slows=0.7),
        Entry(seconds=20.0, lane=2, slows=0.7),
    ]
    _, end_s = run(build_table(entries, lanes=(0, 1, 2), units=(*TWO_UNITS, (0, COPY))))
    assert end_s[0] == pytest.approx(10.0)


@both
def test_compute_slows_neither_itself_nor_communication_nor_other_places(run: Run) -> None:
    entries = [
        Entry(seconds=2.0, slows=0.5),
        Entry(seconds=2.0, lane=1, slows=0.5),
        Entry(seconds=2.0, lane=2),
    ]
    _, end_s = run(
        build_table(entries, lanes=(0, 1, 2), units=((0, COMPUTE), (1, COMMUNICATION), (2, COMPUTE)))
    )
    assert end_s.tolist() == [2.0, 2.0, 2.0]


@both
def test_tasks_that_wait_for_each_other_never_run(run: Run) -> None:
    entries = [
        Entry(seconds=1.0, inputs=[1]),
        Entry(seconds=1.0, lane=1, inputs=[0]),
        Entry(seconds=1.0, lane=2),
    ]
    _, end_s = run(build_table(entries, lanes=(0, 1, 1), units=TWO_UNITS))
    assert np.isnan(end_s).tolist() == [True, True, False]


@both
def test_a_table_without_tasks_takes_no_time(run: Run) -> None:
    assert [each.tolist() for each in run(build_table([]))] == [[], []]
