"""Moves on arrays use what the devices of a group hold, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.program.apply import apply, shards_of, whole_of
from trainwright.program.layout import Layout, Mesh, build_layout
from trainwright.program.moves import Move

PAIR = Mesh(devices=(0, 1), axes=(2,))
DIMS = {"h": 4}
VALUES = np.array([1, 2, 3, 4])
WHOLE, HALVES, SHARES = build_layout(PAIR, {}), build_layout(PAIR, {"h": [0]}), build_layout(PAIR, {}, [0])


def move(kind: str, source: Layout, target: Layout) -> Move:
    return Move(kind=kind, source=source, target=target, axes=(0,), sent_bytes=0.0, seconds=0.0)


def held(kind: str, source: Layout, target: Layout, shards: list[list[int]]) -> list[list[int]]:
    result = apply(move(kind, source, target), [np.array(each) for each in shards], DIMS)
    return [each.tolist() for each in result]


def test_an_all_reduce_sums() -> None:
    assert held("all_reduce", SHARES, WHOLE, [[1, 1, 1, 1], [0, 1, 2, 3]]) == [[1, 2, 3, 4]] * 2


def test_a_reduce_scatter_sums_and_splits() -> None:
    assert held("reduce_scatter", SHARES, HALVES, [[1, 1, 1, 1], [0, 1, 2, 3]]) == [[1, 2], [3, 4]]


def test_an_all_gather_puts_parts_in_order() -> None:
    assert held("all_gather", HALVES, WHOLE, [[1, 2], [3, 4]]) == [[1, 2, 3, 4]] * 2


def test_a_slice_keeps_the_own_part() -> None:
    assert held("slice", WHOLE, HALVES, [[1, 2, 3, 4]] * 2) == [[1, 2], [3, 4]]


def test_one_device_keeps_the_value_and_others_zeros() -> None:
    assert held("zero", WHOLE, SHARES, [[1, 2, 3, 4]] * 2) == [[1, 2, 3, 4], [0, 0, 0, 0]]


def test_a_wrong_move_is_found_out() -> None:
    wrong = move("slice", HALVES, WHOLE)
    with pytest.raises(AssertionError, match="no device of the group holds all"):
        apply(wrong, shards_of(VALUES, HALVES, DIMS), DIMS)


def test_shares_differ_and_sum_to_the_value() -> None:
    first, second = shards_of(VALUES, SHARES, DIMS)
    assert (first.tolist(), second.tolist()) == ([0, 1, 2, 3], [1, 1, 1, 1])
    assert whole_of([first, second], SHARES, DIMS).tolist() == [1, 2, 3, 4]


def test_copies_that_differ_are_found_out() -> None:
    with pytest.raises(AssertionError, match="device 1 holds another copy"):
        whole_of([VALUES, VALUES + 1], WHOLE, DIMS)


def test_an_exchange_sums_shares_where_they_are_wanted() -> None:
    others = replace(HALVES, mesh=Mesh(devices=(2, 3), axes=(2,)))
    assert held("exchange", SHARES, others, [[1, 1, 1, 1], [0, 1, 2, 3]]) == [[1, 2], [3, 4]]
