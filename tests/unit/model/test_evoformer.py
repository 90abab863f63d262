"""AlphaFold2: an alignment and pairs of residues, three passes a step."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.builders import free_stack, perfect, round_cluster, round_device
from trainwright.cost.operators import Machine
from trainwright.errors import BadInput
from trainwright.estimate.blocks import block_costs
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Op, dim_sizes, parameters, segment_parameters
from trainwright.model.load import load_model
from trainwright.model.totals import forward_flops, model_flops, op_flops, saved_bytes
from trainwright.plan.strategy import Strategy, stack_strategies

ROWS, RESIDUES, HIDDEN, PAIR = 3, 5, 8, 4
TINY = Architecture(
    name="tiny", kind="evoformer", layers=2, hidden=HIDDEN, heads=2, rows=ROWS, pair_hidden=PAIR,
    pair_heads=2, norm="layer", passes=3,
)  # fmt: skip
GRAPH = build_graph(TINY)
LAYER = GRAPH.segments[1]
SIZES = dim_sizes(GRAPH, LAYER, batch=1, seq=RESIDUES)


def op(name: str) -> Op:
    return next(op for op in LAYER.block.ops if op.name == name)


def test_a_block_of_alphafold2_has_its_parameters() -> None:
    row = 512 + 256 + 128 * 8 + 3 * 256**2 + 2 * (256**2 + 256)  # norms, bias, q k v, gate and output
    column = 512 + 3 * 256**2 + 2 * (256**2 + 256)
    transition = 512 + 2 * 256 * 1024 + 1024 + 256
    outer = 512 + 2 * (256 * 32 + 32) + 32 * 32 * 128 + 128
    product = 256 + 4 * (128**2 + 128) + 256 + 2 * (128**2 + 128)
    attention = 256 + 128 * 4 + 3 * 128**2 + 2 * (128**2 + 128)
    pair_transition = 256 + 2 * 128 * 512 + 512 + 128
    block = row + column + transition + outer + 2 * product + 2 * attention + pair_transition
    graph = build_graph(load_model("alphafold2"))
    assert block == 1_829_952
    assert segment_parameters(graph, graph.segments[1]) == 48 * block


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("alphafold2-87m", 87),
        ("alphafold2-930m", 930),
        ("alphafold2-2.4b", 2400),
        ("alphafold2-3.2b", 3200),
    ],
)
def test_the_variants_have_their_counts_within_two_percent(name: str, millions: float) -> None:
    assert parameters(build_graph(load_model(name))) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("row.core", 4 * ROWS * RESIDUES**2 * HIDDEN),
        ("column.core", 4 * ROWS**2 * RESIDUES * HIDDEN),
        ("starting.core", 4 * RESIDUES**3 * PAIR),
        ("ending.core", 4 * RESIDUES**3 * PAIR),
        ("outgoing.product", 2 * RESIDUES**3 * PAIR),
        ("incoming.product", 2 * RESIDUES**3 * PAIR),
        ("outer.product", 2 * ROWS * RESIDUES**2 * 32**2),
        ("outer.output", 2 * RESIDUES**2 * 32**2 * PAIR),
        ("msa_transition.up", 2 * ROWS * RESIDUES * HIDDEN * 4 * HIDDEN),
        ("pair_transition.up", 2 * RESIDUES**2 * PAIR * 4 * PAIR),
    ],
)
def test_each_op_costs_what_its_indices_say(name: str, flops: int) -> None:
    assert op_flops(op(name), SIZES) == flops


def test_a_block_keeps_both_streams_at_their_own_size() -> None:
    rows, pairs = ROWS * RESIDUES, RESIDUES**2
    # hidden per position: each attention 8 (stream, norm, q, k, v, result, gate, gated), transition 10,
    # outer product 2 and its sides 64; per pair: row bias 2 and one per head, the outer product 1024,
    # each triangle product 12, each triangle attention 8 and one per head, transition 10
    elements = rows * (HIDDEN * (8 + 8 + 10 + 2) + 64)
    elements += pairs * (PAIR * (2 + 2 * 12 + 2 * 8 + 10) + 2 + 2 * 2 + 1024)
    statistics = 4 * (2 * 2 * rows + 2 * 2 * pairs)  # fp32, one per head and query of four attentions
    assert saved_bytes(LAYER.block, SIZES) == 2 * elements + statistics


def test_a_block_hands_both_streams_on() -> None:
    assert LAYER.block.outputs == (
        ("stream", "msa_transition.residual"), ("pair", "pair_transition.residual")
    )  # fmt: skip
    machine = Machine(device=round_device(), efficiency=perfect(), stack=free_stack(), precision="bf16")
    shapes, _ = distinct_shapes(stack_strategies([Strategy(micro_batch=2)]))
    costs = block_costs(GRAPH, LAYER, RESIDUES, shapes, machine)
    both = 2 * 2 * (ROWS * RESIDUES * HIDDEN + RESIDUES**2 * PAIR)
    np.testing.assert_allclose(costs.hidden_bytes, both)
    # tensor parallelism sums three branches of the alignment and three of the pairs
    reduced = 3 * 2 * 2 * ROWS * RESIDUES * HIDDEN + 3 * 2 * 2 * RESIDUES**2 * PAIR
    np.testing.assert_allclose(costs.tp_reductions * costs.hidden_bytes, reduced)


def test_three_passes_are_three_forwards_and_one_backward() -> None:
    forward = forward_flops(GRAPH, 1, RESIDUES)
    assert model_flops(GRAPH, 1, RESIDUES) == 5 * forward
    assert model_flops(replace(GRAPH, passes=1), 1, RESIDUES) == 3 * forward


def test_recycling_adds_forwards_to_a_step_and_nothing_to_its_memory() -> None:
    graph = build_graph(load_model("alphafold2"))
    strategies = stack_strategies([Strategy(dp=2, zero=3), Strategy(pp=2), Strategy(tp=2, recompute="full")])
    steps, memory = [], []
    for passes in (1, 2, 4):
        job = Job(
            graph=replace(graph, passes=passes), cluster=round_cluster(2), stack=free_stack(),
            efficiency=perfect(), seq=256, global_batch=8,
        )  # fmt: skip
        result = estimate(job, strategies)
        steps.append(result.step_s)
        memory.append(result.total_bytes)
    np.testing.assert_allclose(steps[2] - steps[1], 2 * (steps[1] - steps[0]), rtol=0.02)
    assert (steps[1] - steps[0] < 0.5 * steps[0]).all()
    assert (steps[1] > steps[0]).all()
    np.testing.assert_array_equal(memory[0], memory[2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 0}, "rows 0: an Evoformer needs one; state rows"),
        ({"pair_heads": 3}, "pair_hidden 4: does not divide by pair_heads = 3"),
        ({"passes": 0}, "passes 0: must be a whole number of at least 1"),
    ],
)
def test_an_evoformer_that_cannot_be_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        replace(TINY, **changes)
