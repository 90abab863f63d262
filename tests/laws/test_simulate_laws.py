"""What holds for the simulation of every table."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import longest_path_s, tables, with_places
from trainwright.program.table import Table
from trainwright.simulate import engine, reference
from trainwright.simulate.breakdown import breakdown
from trainwright.simulate.critical import critical_path
from trainwright.simulate.memory import curve, lifetimes, peaks
from trainwright.simulate.simulate import simulate

NEXT_TO_NOTHING = 1e-9


def same_bytes(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    return [each.tobytes() for each in a] == [each.tobytes() for each in b]


@given(tables())
def test_the_engine_gives_the_bytes_of_the_reference(table: Table) -> None:
    assert same_bytes(engine.run(table), reference.run(table))


@given(tables())
def test_two_simulations_give_the_same_bytes(table: Table) -> None:
    assert same_bytes(engine.run(table), engine.run(table))


@given(tables())
def test_a_step_takes_at_least_its_critical_path_and_the_work_of_each_unit(table: Table) -> None:
    step_s = simulate(table).step_s
    work_s = np.bincount(table.lane_unit[table.lane], table.seconds, minlength=1).max(initial=0.0)
    assert step_s >= longest_path_s(table) - NEXT_TO_NOTHING
    assert step_s >= work_s - NEXT_TO_NOTHING


@given(tables())
def test_a_unit_runs_one_task_at_a_time_and_a_task_runs_after_its_inputs(table: Table) -> None:
    start_s, end_s = engine.run(table)
    for task in range(len(table)):
        inputs = table.inputs[table.first_input[task] : table.first_input[task + 1]]
        assert start_s[task] >= end_s[inputs].max(initial=0.0)
    unit = table.lane_unit[table.lane]
    for each in range(len(table.unit_place)):
        ran = np.flatnonzero(unit == each)
        ran = ran[np.lexsort((end_s[ran], start_s[ran]))]
        assert (start_s[ran][1:] >= end_s[ran][:-1]).all()


@given(tables(), st.randoms(use_true_random=False))
def test_renaming_places_changes_nothing_but_the_places(table: Table, random: st.DataObject) -> None:
    order = list(range(len(table.places)))
    random.shuffle(order)
    before, after = simulate(table), simulate(with_places(table, order))
    assert same_bytes((before.start_s, before.end_s), (after.start_s, after.end_s))
    assert peaks(before).peak_bytes.tobytes() == peaks(after).peak_bytes[order].tobytes()
    for cause, spent_s in breakdown(before).time_s.items():
        assert spent_s.tobytes() == breakdown(after).time_s[cause][order].tobytes()


@given(tables(lanes_per_unit=1))
def test_without_contention_no_step_of_a_fixed_order_is_slower(table: Table) -> None:
    # With several lanes on a unit the order can change, and a shorter task can make a step longer.
    alone = replace(table, slows=np.zeros(len(table)))
    assert simulate(alone).step_s <= simulate(table).step_s + NEXT_TO_NOTHING


@given(tables())
def test_the_parts_of_a_breakdown_add_up_to_the_step_on_each_place(table: Table) -> None:
    timeline = simulate(table)
    parts = breakdown(timeline)
    assert sum(parts.time_s.values()) == pytest.approx(timeline.step_s, rel=1e-9, abs=1e-12)
    for each in (*parts.time_s.values(), *parts.hidden_s.values()):
        assert (each >= 0).all()


@given(tables())
def test_a_critical_path_has_no_gaps(table: Table) -> None:
    timeline = simulate(table)
    path = list(critical_path(timeline).tasks)
    if path:
        assert timeline.start_s[path[0]] == 0.0
        assert (timeline.start_s[path[1:]] == timeline.end_s[path[:-1]]).all()
        assert timeline.end_s[path[-1]] == timeline.step_s


@given(tables())
def test_the_peak_is_what_a_count_at_every_instant_finds(table: Table) -> None:
    timeline = simulate(table)
    lives, found = lifetimes(timeline), peaks(timeline)
    for place in range(len(table.places)):
        own = np.flatnonzero(table.buffer_place == place)
        held = [
            sum(table.buffer_bytes[own[(lives.start_s[own] <= t) & (t < lives.end_s[own])]])
            for t in (0.0, *lives.start_s[own])
        ]
        assert found.peak_bytes[place] == max(held)
        assert curve(timeline, place).category_bytes.sum(axis=0).max() == max(held)
