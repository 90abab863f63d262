"""Swin v2: stages of fewer and wider tokens, attention inside windows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import free_stack, perfect, round_device
from trainwright.cost.operators import Machine
from trainwright.errors import BadInput
from trainwright.estimate.blocks import block_costs
from trainwright.estimate.shapes import distinct_shapes
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, Op, Segment, dim_sizes, parameters, segment_parameters
from trainwright.model.load import load_model
from trainwright.model.totals import forward_flops, op_flops, saved_bytes
from trainwright.plan.strategy import Strategy, stack_strategies

# 32 x 32 pixels: 8 x 8 patches in windows of 4 x 4, then 4 x 4 patches in one window.
TINY = Architecture(
    name="tiny", kind="swin", layers=4, depths=(2, 2), hidden=8, heads=2, window=4,
    image_size=32, patch_size=4, classes=10, norm="layer", mlp_bias=True, head_bias=True,
)  # fmt: skip


def op(segment: Segment, name: str) -> Op:
    return next(op for op in segment.block.ops if op.name == name)


def sizes(graph: Graph, segment: Segment, batch: int = 1) -> Mapping[str, int]:
    return dim_sizes(graph, segment, batch, seq=1)


def test_tokens_fall_to_a_quarter_while_hidden_and_heads_double() -> None:
    graph = build_graph(load_model("swin-1.8b"))
    layers = graph.segments[1:-1]
    assert [(s.block.name, s.count, s.seq) for s in layers] == [
        ("layer", 2, 384**2),
        *(("layer.merge", 1, 192**2), ("layer", 1, 192**2)),
        *(("layer.merge", 1, 96**2), ("layer", 25, 96**2)),
        *(("layer.merge", 1, 48**2), ("layer", 1, 48**2)),
    ]
    widths = [(sizes(graph, s)["hidden"], sizes(graph, s)["heads"], sizes(graph, s)["ffn"]) for s in layers]
    assert widths[0::2] == [(512, 16, 2048), (1024, 32, 4096), (2048, 64, 8192), (4096, 128, 16384)]


def test_a_stage_has_the_parameters_of_its_own_width() -> None:
    # q, k, v, output 4 x 8 x 8, biases of q, v, output 24, scale 2, bias network 2 x 512 + 512 + 512 x 2
    # ffn 2 x 8 x 32 + 40, two norms 4 x 8
    first = 256 + 24 + 2 + 2560 + 512 + 40 + 32
    # the same at width 16 with 4 heads: 1024 + 48 + 4 + 3584 + 2048 + 80 + 64; merging 32 x 16 + 2 x 16
    second = 1024 + 48 + 4 + 3584 + 2048 + 80 + 64
    graph = build_graph(TINY)
    counts = [segment_parameters(graph, segment) for segment in graph.segments]
    # patches 48 x 8 + 8 and a norm of 16; head: a norm of 32, 16 x 10 + 10
    assert counts == [408, 2 * first, second + 32 * 16 + 32, second, 32 + 170]


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        *(("swin-1.8b", 1.79), ("swin-5b", 4.93), ("swin-10b", 10.4), ("swin-27b", 27.0)),
        *(("swinv2-base", 0.088), ("swinv2-large", 0.197), ("swinv2-giant", 3.0)),
    ],
)
def test_parameters_are_the_published_ones_within_half_a_percent(name: str, billions: float) -> None:
    assert parameters(build_graph(load_model(name))) / 1e9 == pytest.approx(billions, rel=5e-3)


@pytest.mark.parametrize(("name", "giga_macs"), [("swinv2-tiny", 5.94), ("swinv2-base", 20.325)])
def test_a_forward_pass_costs_what_torchvision_states(name: str, giga_macs: float) -> None:
    graph = build_graph(load_model(name))
    assert forward_flops(graph, batch=1, seq=1) / 2e9 == pytest.approx(giga_macs, rel=1e-3)


def test_each_token_meets_the_keys_of_its_window() -> None:
    graph = build_graph(TINY)
    first, last = graph.segments[1], graph.segments[-2]
    # 4 x tokens x keys x hidden: 64 tokens meet 16 keys at width 8, 16 tokens meet all 16 at width 16
    assert op_flops(op(first, "attention.core"), sizes(graph, first)) == 4 * 64 * 16 * 8
    assert op_flops(op(last, "attention.core"), sizes(graph, last)) == 4 * 16 * 16 * 16
    assert op_flops(op(first, "attention.core"), sizes(graph, first), causal=True) == 4 * 64 * 16 * 8


def test_a_window_is_no_larger_than_its_stage() -> None:
    wide = build_graph(replace(TINY, window=8))
    assert op(wide.segments[1], "attention.core").window == 64
    assert op(wide.segments[-2], "attention.core").window == 16


def test_a_layer_keeps_18_hidden_states_at_the_size_of_its_stage() -> None:
    # window copy 1, q k 2, unit q k 2, v 1, result 1, window join 1, ffn input 1, ffn 4 + 4, its result 1
    # row statistics 4 bytes per head; the bias network 2 + 512 + 512 + heads per offset
    graph = build_graph(TINY)
    first, merging, last = graph.segments[1:4]
    first_bytes = 64 * (2 * 18 * 8 + 4 * 2) + 2 * 49 * (1026 + 2)
    last_bytes = 16 * (2 * 18 * 16 + 4 * 4) + 2 * 49 * (1026 + 4)
    merged_bytes = 2 * 16 * (4 * 8 + 16)  # what is merged, and the result before its norm
    assert saved_bytes(first.block, sizes(graph, first)) == first_bytes
    assert saved_bytes(last.block, sizes(graph, last)) == last_bytes
    assert saved_bytes(merging.block, sizes(graph, merging)) == last_bytes + merged_bytes


def test_the_estimate_sees_each_stage_at_its_own_size() -> None:
    graph = build_graph(TINY)
    machine = Machine(
        device=round_device(), efficiency=perfect(), stack=free_stack(attention="unfused"), precision="bf16"
    )
    shapes, _ = distinct_shapes(stack_strategies([Strategy(micro_batch=3)]))
    first, _, last = (
        block_costs(graph, each, 1, shapes, machine, recomputes=("core_attn",))
        for each in graph.segments[1:4]
    )
    np.testing.assert_allclose(first.hidden_bytes, 3 * 64 * 8 * 2)
    np.testing.assert_allclose(last.hidden_bytes, 3 * 16 * 16 * 2)
    np.testing.assert_allclose(last.dense_parameters, segment_parameters(graph, graph.segments[3]))
    # unfused, a score costs 5 bytes: 64 queries of 2 heads with 16 keys each, then 16 of 4 heads
    # 4 bytes of statistics go with each query; to run again, a bias of 2 bytes per pair and head is kept
    first_freed, last_freed = (each.saved_bytes - each.kept_bytes[0] for each in (first, last))
    np.testing.assert_allclose(first_freed, 3 * 2 * 64 * (5 * 16 + 4) - 2 * 2 * 16 * 16)
    np.testing.assert_allclose(last_freed, 3 * 4 * 16 * (5 * 16 + 4) - 2 * 4 * 16 * 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"depths": (2, 3)}, r"depths \(2, 3\): do not add up to layers = 4"),
        ({"depths": ()}, r"depths \(\): must be the layers of each stage"),
        ({"depths": 4}, r"depths 4: must be the layers of each stage"),
        ({"window": 0}, r"window 0: a Swin needs one; state the side"),
        ({"window": 3}, r"window 3: does not tile stage 1 of 8 / 1 patches a side"),
        ({"image_size": 40}, r"window 4: does not tile stage 1 of 10 / 1"),
        ({"image_size": "32"}, r'image_size "32": must be a whole number'),
    ],
)
def test_a_swin_that_cannot_be_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(TINY, **changes)


def test_the_sequence_of_a_swin_are_the_patches_of_its_image() -> None:
    assert TINY.max_seq == 64
    assert load_model("swin-27b").max_seq == 384**2
