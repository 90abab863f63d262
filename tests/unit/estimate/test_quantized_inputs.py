"""What fp8 and fp4 linears keep of their inputs, against what Transformer Engine saves of a dense layer."""

from dataclasses import replace

import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.cost.operators import Machine
from trainwright.estimate.blocks import block_costs
from trainwright.estimate.shapes import distinct_shapes
from trainwright.model.build import build_graph
from trainwright.model.graph import is_layer
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategy, stack_strategies

HIDDEN, KEYS, FFN, HEADS = 4096, 1024, 14336, 32  # Llama 3 8B: width, keys, feed-forward, heads


def kept_per_token(recompute: str, precision: str, *, quantized: bool) -> float:
    graph, device = build_graph(load_model("llama3-8b")), load_cluster("h100:8").device
    constants = load_constants()
    stack = replace(constants.stack("megatron-core"), quantized_inputs=quantized)
    machine = Machine(
        device=device, efficiency=constants.efficiency(device), stack=stack, precision=precision
    )
    layer = next(segment for segment in graph.segments if is_layer(segment.block))
    shapes, _ = distinct_shapes(stack_strategies([Strategy(precision=precision)]))
    found = block_costs(graph, layer, 1, shapes, machine, recomputes=(recompute,))
    return float(found.kept_bytes[0, 0])


# Norm inputs, q, k, v, the result of attention, gate and up stay 2 bytes; 4 bytes of statistics a head.
WIDE = 2 * 2 * HIDDEN + 2 * (HIDDEN + 2 * KEYS) + 2 * HIDDEN + 2 * 2 * FFN + 4 * HEADS


@pytest.mark.parametrize(
    ("recompute", "precision", "quantized", "more"),
    [
        ("none", "bf16", True, 2 * 2 * HIDDEN + 2 * FFN),
        ("none", "fp8", False, 2 * 2 * HIDDEN + 2 * FFN),
        # outputs of both norms and of the activation in one byte; the result of attention once more
        ("none", "fp8", True, 2 * HIDDEN + FFN + HIDDEN),
        # half a byte each in nvfp4, and a scale of one byte per 16
        ("none", "fp4", True, 0.5625 * (2 * HIDDEN + FFN + HIDDEN)),
        ("act", "fp8", True, 2 * HIDDEN + HIDDEN),
        # run again as a whole, the feed-forward part starts from two bytes
        ("mlp", "fp8", True, HIDDEN + 2 * HIDDEN + HIDDEN - 2 * 2 * FFN),
    ],
)
def test_a_linear_keeps_its_input_quantized(
    recompute: str, precision: str, quantized: bool, more: float
) -> None:
    assert kept_per_token(recompute, precision, quantized=quantized) == pytest.approx(WIDE + more)
