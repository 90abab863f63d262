"""Strategies that give a layer the same shape share one column."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.builders import gpt
from trainwright.estimate.shapes import distinct_shapes, split_sizes
from trainwright.plan.strategy import Strategy, stack_strategies

SEQ = {"seq": 1024.0, "seq_enc": 1024.0}


def of(sizes: Mapping[str, NDArray[np.float64]], *dims: str) -> list[float]:
    """Sizes of some dims at the only shape."""
    return [float(sizes[dim][0]) for dim in dims]


def test_knobs_that_do_not_shape_a_layer_share_a_column() -> None:
    batch = stack_strategies(
        [Strategy(dp=d, tp=2, zero=z, pp=p) for d in (1, 8) for z in (0, 1, 3) for p in (1, 4)]
    )
    shapes, where = distinct_shapes(batch)
    assert len(shapes) == 1
    assert where.tolist() == [0] * 12


def test_each_strategy_finds_its_own_shape() -> None:
    batch = stack_strategies(
        [
            Strategy(tp=t, sp=s, cp=c, micro_batch=b)
            for t in (1, 4)
            for s in (False, True)
            for c in (1, 2)
            for b in (1, 3)
        ]
    )
    shapes, where = distinct_shapes(batch)
    assert len(shapes) == 16
    for name in ("tp", "sp", "cp", "micro_batch", "ep", "etp", "precision"):
        assert np.array_equal(getattr(shapes, name)[where], getattr(batch, name))


def test_only_combinations_that_occur_are_kept() -> None:
    shapes, _ = distinct_shapes(
        stack_strategies([Strategy(tp=1, micro_batch=4), Strategy(tp=8, micro_batch=1)])
    )
    assert len(shapes) == 2  # not 2 x 2


def test_tensor_parallelism_splits_heads_and_ffn_but_not_the_sequence() -> None:
    shapes, _ = distinct_shapes(stack_strategies([Strategy(tp=4, micro_batch=2)]))
    sizes = split_sizes(gpt().sizes, SEQ, shapes, "attention")
    assert of(sizes, "heads", "ffn", "hidden") == [2, 1024, 1024]  # 8/4, 4096/4, whole
    assert of(sizes, "batch", "seq") == [2, 1024]


@pytest.mark.parametrize(("sp", "seq"), [(False, 1024), (True, 256)])
def test_sequence_parallelism_splits_what_tensor_parallelism_leaves_whole(sp: bool, seq: int) -> None:
    shapes, _ = distinct_shapes(stack_strategies([Strategy(tp=4, sp=sp)]))
    assert split_sizes(gpt().sizes, SEQ, shapes, "sequence")["seq"] == seq


def test_context_parallelism_splits_queries_but_not_keys() -> None:
    shapes, _ = distinct_shapes(stack_strategies([Strategy(cp=4)]))
    sizes = split_sizes(gpt().sizes, SEQ, shapes, "attention")
    assert of(sizes, "seq", "seq_kv") == [256, 1024]


def test_expert_parallelism_keeps_the_rows_and_divides_the_experts() -> None:
    graph = gpt(experts=8, top_k=2, expert_ffn=512)
    shapes, _ = distinct_shapes(stack_strategies([Strategy(ep=4, etp=2, tp=2, dp=4)]))
    sizes = split_sizes(graph.sizes, SEQ, shapes, "experts")
    assert of(sizes, "experts", "expert_ffn") == [2, 256]  # 8/4, 512/2
    # 1024 tokens over 2 tensor ranks, 2 experts each, gathered over 2 expert-tensor ranks
    assert sizes["expert_rows"] == 1024 / 2 * 2 * 2
