from itertools import combinations, pairwise
from math import inf

import numpy as np
import pytest

from tests.builders import gpt
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.plan.zoo.counts import best_counts, parse_counts
from trainwright.plan.zoo.uneven_stages import layer_flops


def test_the_slowest_stage_is_as_fast_as_can_be() -> None:
    # 1+2+3 | 4 | 5 has 6; every other cut has a stage of 7 or more.
    assert best_counts([1, 2, 3, 4, 5], 3) == (3, 1, 1)


def test_a_stage_that_does_not_fit_is_not_chosen() -> None:
    # The first stage holds two microbatches of 3 bytes a layer: one layer in 6 bytes.
    assert best_counts([1, 1, 1, 1], 2, kept_bytes=[3, 3, 3, 3], held=[2, 1], limit_bytes=9) == (1, 3)
    with pytest.raises(InfeasiblePlan, match="no cut of 4 layers into 2 stages fits"):
        best_counts([1, 1, 1, 1], 2, state_bytes=[9, 9, 9, 9], limit_bytes=10)


def test_no_cut_is_better_than_the_one_that_is_found() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        layers, stages = int(random.integers(3, 9)), int(random.integers(1, 4))
        times, states = random.integers(1, 9, (2, layers)).astype(float)
        limit = float(states.sum()) * 0.7
        cuts = [(0, *cut, layers) for cut in combinations(range(1, layers), stages - 1)]
        best = min(
            (
                max(times[a:b].sum() for a, b in pairwise(cut))
                for cut in cuts
                if all(states[a:b].sum() <= limit for a, b in pairwise(cut))
            ),
            default=inf,
        )
        if best == inf:
            with pytest.raises(InfeasiblePlan, match="no cut"):
                best_counts(times, stages, state_bytes=states, limit_bytes=limit)
            continue
        ends = np.cumsum((0, *best_counts(times, stages, state_bytes=states, limit_bytes=limit)))
        assert max(times[a:b].sum() for a, b in pairwise(ends)) == best


def test_counts_are_read_from_text() -> None:
    assert parse_counts("7:9:9:7") == (7, 9, 9, 7)
    assert parse_counts("") == ()
    with pytest.raises(BadInput, match='counts "7:x": is not a number of layers'):
        parse_counts("7:x")
    with pytest.raises(BadInput, match="4 layers cannot fill them"):
        best_counts([1, 1, 1, 1], 5)


def test_the_head_counts_with_the_last_layer() -> None:
    flops = layer_flops(gpt(layers=4, vocab=65536), seq=1024)
    assert flops[0] == flops[1] == flops[2] < flops[3]
