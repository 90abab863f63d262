"""Choosing operators by name."""

import pytest

from tests.laws.plans import tiny
from trainwright.errors import BadInput
from trainwright.model.flow import wire
from trainwright.plan.select import layer_range, select

INSTANCES = wire(tiny("llama"))


def names(pattern: str) -> list[str]:
    return [INSTANCES[index].name for index in select(INSTANCES, pattern)]


@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("embedding", ["embedding/embedding"]),
        ("*/norm1", ["layer.0/norm1", "layer.1/norm1"]),
        ("layer.0-1/norm2", ["layer.0/norm2", "layer.1/norm2"]),
        ("layer.1/ffn.*", ["layer.1/ffn.up", "layer.1/ffn.activation", "layer.1/ffn.down"]),
        ("layer.0/@ffn", ["layer.0/ffn.up", "layer.0/ffn.activation", "layer.0/ffn.down"]),
        ("@vocab", ["embedding/embedding", "head/logits", "head/loss"]),
        ("%loss", ["head/loss"]),
        ("head/loss,embedding", ["embedding/embedding", "head/loss"]),
    ],
)
def test_a_pattern_chooses_operators_in_the_order_of_the_model(pattern: str, chosen: list[str]) -> None:
    assert names(pattern) == chosen


def test_a_star_chooses_all() -> None:
    assert names("*") == [each.name for each in INSTANCES]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("layer.7", '"layer.7": chooses nothing in this model; blocks are embedding, head, layer'),
        ("head,*/norm9", '"\\*/norm9": chooses nothing'),
        ("layer.1-0", 'layers "layer.1-0": the range is empty; write layer.0-1'),
        ("a/b/c", 'operators "a/b/c": is not BLOCK/OP'),
        ("", "operators: is not BLOCK/OP"),
    ],
)
def test_a_pattern_that_chooses_nothing_is_an_error(pattern: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        select(INSTANCES, pattern)


def test_numbered_blocks_are_written_in_runs() -> None:
    assert layer_range([0, 1, 2, 5]) == "layer.0-2,layer.5"
