"""Schedules that cannot run, and what is said of them."""

from dataclasses import replace

import pytest

from trainwright.errors import BadInput
from trainwright.plan.action import parse_actions
from trainwright.plan.schedules import EVERY_ROW, Schedule, build_schedule, check


def schedule_of(*rows: str, route: tuple[int, ...] = (0, 1)) -> Schedule:
    return Schedule(rows=tuple(map(parse_actions, rows)), routes=(route,))


def test_a_right_schedule_passes() -> None:
    check(schedule_of("F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 I1.1 W1.1"), 2, 2)


def test_a_deadlock_is_reported_as_the_actions_that_wait_for_each_other() -> None:
    circle = (
        r"deadlock: B0\.0 waits for B1\.0, which row 1 runs after F1\.1; "
        r"F1\.1 waits for F0\.1, which row 0 runs after B0\.0; reorder a row"
    )
    with pytest.raises(BadInput, match=circle):
        check(schedule_of("F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1"), 2, 2)


def test_rows_that_only_wait_for_a_deadlock_are_not_named() -> None:
    rows = ("F0.0 B0.0", "F1.0 B1.0", "F2.0 W2.0 I2.0")
    with pytest.raises(
        BadInput, match=r"deadlock: W2\.0 waits for I2\.0, which row 2 runs after W2\.0;"
    ) as caught:
        check(schedule_of(*rows, route=(0, 1, 2)), 3, 1)
    assert "B0.0" not in str(caught.value)


def test_rows_that_share_a_stage_must_run_its_actions_in_one_order() -> None:
    shared = schedule_of("F0.0 F0.1 B0.0 B0.1", "F0.1 F0.0 B0.0 B0.1", route=(EVERY_ROW,))
    circle = (
        r"F0\.0 waits for F0\.0, which row 1 runs after F0\.1; "
        r"F0\.1 waits for F0\.1, which row 0 runs after F0\.0"
    )
    with pytest.raises(BadInput, match=circle):
        check(shared, 1, 2)


def test_an_action_that_nobody_runs_is_named() -> None:
    with pytest.raises(BadInput, match=r'action "B1\.0": no row runs it, but row 1 must run it once'):
        check(schedule_of("F0.0 B0.0", "F1.0"), 2, 1)
    with pytest.raises(BadInput, match=r'action "W1\.0": no row runs it'):
        check(schedule_of("F0.0 B0.0", "F1.0 I1.0"), 2, 1)
    with pytest.raises(BadInput, match=r'action "F1\.0": row 1 runs it, but row 0, 1 must run it once'):
        check(schedule_of("F0.0 B0.0", "F1.0 B1.0", route=(0, EVERY_ROW)), 2, 1)


def test_an_action_runs_where_its_stage_is() -> None:
    with pytest.raises(BadInput, match=r'action "F0\.0": row 1 runs it, but row 0 must run it once'):
        check(schedule_of("B0.0", "F0.0 F1.0 B1.0"), 2, 1)


def test_an_action_runs_once() -> None:
    with pytest.raises(BadInput, match=r'action "F0\.0": row 0, 0 runs it, but row 0 must run it once'):
        check(schedule_of("F0.0 F0.0 B0.0", "F1.0 B1.0"), 2, 1)
    with pytest.raises(BadInput, match=r'action "B0\.0": its backward is also split; keep B, or I and W'):
        check(schedule_of("F0.0 B0.0 W0.0", "F1.0 B1.0"), 2, 1)


def test_actions_beyond_the_model_are_refused() -> None:
    right = build_schedule("1f1b", 2, 2)
    with pytest.raises(BadInput, match=r'"F0\.1": not among 2 stages, 1 microbatches and 1 passes; drop it'):
        check(right, 2, 1)
    with pytest.raises(BadInput, match="schedule stages 2: 3 are to run"):
        check(right, 3, 2)


def test_every_pass_must_be_there_and_in_order() -> None:
    recycled = build_schedule("3f1b", 2, 2)
    check(recycled, 2, 2, passes=3)
    with pytest.raises(BadInput, match=r'"N0\.0\.1": not among'):
        check(recycled, 2, 2, passes=2)
    with pytest.raises(BadInput, match=r'"N0\.0\.2": no row runs it'):
        check(recycled, 2, 2, passes=4)
    eager = schedule_of("F0.0 N0.0 B0.0", "N1.0 F1.0 B1.0")
    with pytest.raises(
        BadInput, match=r"F0\.0 waits for N1\.0; N1\.0 waits for N0\.0, which row 0 runs after F0\.0"
    ):
        check(eager, 2, 1, passes=2)


def test_both_routes_are_followed() -> None:
    chimera = build_schedule("chimera", 2, 2)
    check(chimera, 2, 2)
    with pytest.raises(BadInput, match=r'"F0\.1": row 1 runs it, but row 0 must run it once'):
        check(replace(chimera, routes=chimera.routes[:1]), 2, 2)
