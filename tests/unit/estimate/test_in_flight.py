"""Microbatches that rows of a pipeline hold at once, as their schedules order forwards and backwards."""

from typing import Any

import pytest

from tests.builders import floats
from trainwright.estimate.in_flight import HeldMicrobatches, held_microbatches
from trainwright.plan.schedules import build_schedule
from trainwright.plan.strategy import Strategy, stack_strategies

CASES = (
    ("1f1b", {}, 4, 8),
    ("1f1b", {}, 4, 2),  # fewer microbatches than stages
    ("gpipe", {}, 4, 8),
    ("interleaved", {"vpp": 2}, 4, 8),
    ("interleaved", {"vpp": 4}, 4, 8),
    ("interleaved", {"vpp": 3}, 4, 4),
)


def held(schedule: str, pp: int, microbatches: int, row: int = 1, **knobs: Any) -> list[HeldMicrobatches]:
    """By the first row, one between the ends, and the last."""
    strategies = stack_strategies([Strategy(pp=pp, schedule=schedule, **knobs)])
    return list(held_microbatches(strategies, floats(microbatches), floats(row)))


def most_held(schedule: str, pp: int, microbatches: int, row: int, end: str, **options: Any) -> float:
    """The most chunks after their forward and before `end`, in microbatches, counted along a row's order."""
    count = most = 0
    for action in build_schedule(schedule, pp, microbatches, **options).rows[row]:
        count += (action.phase == "F") - (action.phase == end)
        most = max(most, count)
    return most / options.get("vpp", 1)


@pytest.mark.parametrize(("schedule", "knobs", "pp", "microbatches"), CASES)
def test_rows_hold_what_their_order_has_under_way(
    schedule: str, knobs: dict[str, int], pp: int, microbatches: int
) -> None:
    for each, row in zip(held(schedule, pp, microbatches, **knobs), (0, 1, pp - 1), strict=True):
        assert float(each.in_flight[0]) == most_held(schedule, pp, microbatches, row, "B", **knobs)
        assert float(each.deferred[0]) == 0.0


@pytest.mark.parametrize("microbatches", [2, 3, 4, 8, 12])
@pytest.mark.parametrize("row", [1, 2])
def test_zero_bubble_rows_keep_microbatches_for_weight_gradients(row: int, microbatches: int) -> None:
    for each, place in zip(held("zb", 4, microbatches, row), (0, row, 3), strict=True):
        in_flight, deferred = float(each.in_flight[0]), float(each.deferred[0])
        assert in_flight == most_held("zb-h1", 4, microbatches, place, "I")
        assert in_flight + deferred == most_held("zb-h1", 4, microbatches, place, "W")
