"""Layers lie on stages as evenly as they go."""

import numpy as np
import pytest

from trainwright.estimate.stages import Stages, stage_layout
from trainwright.plan.strategy import Strategy, stack_strategies


def layout(layers: int, pp: int, vpp: int = 1) -> tuple[float, float, float]:
    stages = of(layers, Strategy(pp=pp, vpp=vpp))
    return float(stages.first[0]), float(stages.middle[0]), float(stages.last[0])


def of(layers: int, strategy: Strategy, global_batch: int = 64) -> Stages:
    return stage_layout(layers, global_batch, stack_strategies([strategy]))


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


@pytest.mark.parametrize(("dp", "micro_batch", "count"), [(1, 1, 64), (8, 1, 8), (8, 4, 2), (64, 1, 1)])
def test_the_batch_is_cut_into_microbatches(dp: int, micro_batch: int, count: int) -> None:
    assert of(8, Strategy(dp=dp, micro_batch=micro_batch)).microbatches == count


def test_every_strategy_may_have_its_own_batch() -> None:
    batch = stack_strategies([Strategy(dp=2), Strategy(dp=2)])
    assert stage_layout(8, np.array([8, 32]), batch).microbatches.tolist() == [4, 16]
