"""What a block keeps where its cheap work is done again."""

import pytest

from trainwright.estimate.blocks import _saved_selectively
from trainwright.model.build import build_graph
from trainwright.model.graph import is_layer
from trainwright.model.load import load_model
from trainwright.model.totals import saved_tensors


# Queries are rotated after their norm in Qwen3, at once in Llama: of either, what the product made is kept.
@pytest.mark.parametrize("model", ["qwen3-0.6b", "llama3-8b"])
def test_rotated_queries_are_made_again_from_what_the_product_made(model: str) -> None:
    (block,) = {
        id(s.block): s.block for s in build_graph(load_model(model)).segments if is_layer(s.block)
    }.values()
    kept = {tensor.name for tensor in _saved_selectively(block, saved_tensors(block))}
    assert {"attention.q", "attention.k", "attention.v"} <= kept
    assert not {"attention.rope.q", "attention.rope.k", "norm1.out"} & kept
