"""Layers lie on stages as evenly as they go."""

import numpy as np
import pytest

from trainwright.estimate.stages import Stages, stage_layout
from trainwright.plan.strategy import Strategy, stack_strategies


def layout(layers: int, pp: int) -> tuple[float, float, float]:
    stages = of(layers, Strategy(pp=pp))
    return float(stages.first[0]), float(stages.middle[0]), float(stages.last[0])


def of(layers: int, strategy: Strategy) -> Stages:
    return stage_layout(layers, stack_strategies([strategy]))


def test_one_stage_has_all_layers() -> None:
    assert layout(96, 1) == (96, 96, 96)


@pytest.mark.parametrize("pp", [2, 3, 4, 8, 12, 96])
def test_layers_that_divide_are_spread_evenly(pp: int) -> None:
    assert layout(96, pp) == (96 / pp, 96 / pp, 96 / pp)


def test_embedding_and_head_count_as_layers_where_that_makes_stages_even() -> None:
    # 126 + 2 = 128 = 16 stages of 8; the ends have 7 layers and an embedding or a head
    assert layout(126, 16) == (7, 8, 7)
    assert 7 + 14 * 8 + 7 == 126


def test_a_remainder_relieves_the_ends() -> None:
    # 10 = 2 + 3 + 3 + 2
    assert layout(10, 4) == (2, 3, 2)


@pytest.mark.parametrize("layers", [3, 5, 8, 9])
def test_two_stages_hold_every_layer(layers: int) -> None:
    first, middle, last = layout(layers, 2)
    assert first + last == layers
    assert middle == first  # there is no middle: it stands for the larger


@pytest.mark.parametrize("pp", range(3, 33))
@pytest.mark.parametrize("layers", [32, 61, 126])
def test_stages_hold_at_least_every_layer(layers: int, pp: int) -> None:
    first, middle, last = layout(layers, pp)
    assert first + (pp - 2) * middle + last >= layers  # middle stages stand for the fullest of them
    assert first + (pp - 2) * (middle - 1) + last <= layers


def test_more_stages_than_layers_and_ends_leave_one_empty() -> None:
    assert not of(8, Strategy(pp=10)).empty[0]
    assert of(8, Strategy(pp=11)).empty[0]


def test_a_head_worth_layers_takes_their_place() -> None:
    # 10 layers and a head worth 2 on 4 stages: 3 + 3 + 3 + 1 and the head
    stages = stage_layout(10, stack_strategies([Strategy(pp=4)]), np.array([2.0]))
    assert (stages.first[0], stages.middle[0], stages.last[0]) == (3, 3, 1)


def test_the_row_in_the_middle_is_the_last_full_one_where_a_head_takes_the_place_of_layers() -> None:
    # 20 layers and a head worth 10 on 6 stages: 5 + 5 + 5 + 5 + 0 and the head, which is two stages' work
    stages = stage_layout(20, stack_strategies([Strategy(pp=6)]), np.array([10.0]))
    assert (stages.middle[0], stages.row[0], stages.last[0]) == (5, 3, 0)
