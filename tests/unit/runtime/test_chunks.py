from itertools import product
from math import prod

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch")

from trainwright.runtime.chunks import Box, Claim, claimed_boxes, flat_boxes, without


def cells(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(low, high) for low, high in box)))


def claim(rank: int, box: Box, first: int = 0, last: int | None = None) -> Claim:
    size = prod(high - low for low, high in box)
    return Claim(rank=rank, key="w", box=box, first=first, last=size if last is None else last)


def test_a_range_is_the_end_of_a_row_then_rows_then_the_start_of_one() -> None:
    # Of 4 rows of 5: elements 3 and 4 of row 0, rows 1 and 2, element 0 of row 3.
    found = list(flat_boxes(((0, 4), (0, 5)), 3, 16))
    assert found == [((0, 1), (3, 5)), ((1, 3), (0, 5)), ((3, 4), (0, 1))]


def test_boxes_are_where_the_box_is() -> None:
    assert list(flat_boxes(((2, 4), (5, 8)), 0, 6)) == [((2, 4), (5, 8))]
    assert list(flat_boxes(((2, 4), (5, 8)), 4, 5)) == [((3, 4), (6, 7))]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 1, 5)])
def test_boxes_of_every_range_are_its_elements_in_order(shape: tuple[int, ...]) -> None:
    numbers = np.arange(prod(shape)).reshape(shape)
    box = tuple((0, size) for size in shape)
    for first in range(numbers.size):
        for last in range(first, numbers.size + 1):
            parts = [numbers[tuple(slice(*span) for span in each)] for each in flat_boxes(box, first, last)]
            assert [int(n) for part in parts for n in part.reshape(-1)] == list(range(first, last))


def test_a_box_without_another_is_the_rest_of_it() -> None:
    box, other = ((0, 4), (0, 4)), ((1, 3), (2, 6))
    rest = [cells(each) for each in without(box, other)]
    assert set().union(*rest) == cells(box) - cells(other)
    assert sum(map(len, rest)) == len(cells(box) - cells(other))
    assert list(without(box, ((4, 5), (0, 4)))) == [box]


WHOLE, LEFT, RIGHT, MIDDLE = ((0, 4), (0, 6)), ((0, 4), (0, 3)), ((0, 4), (3, 6)), ((0, 4), (2, 5))


@pytest.mark.parametrize(
    "claims",
    [
        [claim(rank, WHOLE) for rank in range(4)],  # copies
        [claim(0, WHOLE, 0, 7), claim(1, WHOLE, 7, 24)],  # shards
        [claim(0, LEFT), claim(1, RIGHT), claim(2, LEFT), claim(3, RIGHT)],
        [claim(0, WHOLE, 0, 12), claim(1, WHOLE, 12, 24), claim(2, WHOLE, 0, 9), claim(3, WHOLE, 9, 24)],
        [claim(0, LEFT), claim(1, RIGHT), claim(2, MIDDLE, 0, 5), claim(3, MIDDLE, 5, 12)],
    ],
    ids=["copies", "shards", "split", "other shards", "other splits"],
)
def test_every_element_is_written_once_by_one_that_has_it(claims: list[Claim]) -> None:
    written = [each for rank in range(4) for each in claimed_boxes(claims, rank)]
    assert sorted(cell for _, box in written for cell in cells(box)) == sorted(cells(WHOLE))
    for own, box in written:
        held = set().union(*(cells(each) for each in flat_boxes(own.box, own.first, own.last)))
        assert cells(box) <= held


def test_copies_of_many_weights_are_written_by_all_in_turn() -> None:
    claims = [
        Claim(rank=rank, key=f"w{key}", box=WHOLE, first=0, last=24) for rank in range(4) for key in range(64)
    ]
    counts = [len(list(claimed_boxes(claims, rank))) for rank in range(4)]
    assert sum(counts) == 64
    assert min(counts) >= 8
