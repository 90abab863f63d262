"""Totals over a model: FLOPs of a pass, parameters that a token meets, bytes kept for the backward."""

from collections.abc import Mapping
from math import prod

from trainwright.model.graph import (
    ELEMENT_BYTES,
    Block,
    Graph,
    Op,
    Tensor,
    dim_sizes,
    elements,
    parameters,
    query_dim,
    query_groups,
    segment_sizes,
)


def forward_flops(graph: Graph, batch: int, seq: int, *, causal: bool = False) -> float:
    """FLOPs of matmuls and attention in one forward pass; norms and other element work count for nothing.

    By convention attention counts every key, 4 b s s_kv heads head_dim; with `causal`, only the keys that a
    causal mask lets through. A sliding window limits the keys in both.
    """
    total = 0.0
    for segment in graph.segments:
        sizes = dim_sizes(graph, segment, batch, seq)
        total += segment.count * sum(op_flops(op, sizes, causal=causal) for op in segment.block.ops)
    return total


def model_flops(graph: Graph, batch: int, seq: int, *, causal: bool = False) -> float:
    """FLOPs of one training step: the backward costs two forwards, so 6 N D plus 12 L h s D of attention.

    Recycling adds its forwards.
    """
    return (2.0 + graph.passes) * forward_flops(graph, batch, seq, causal=causal)


def op_flops(op: Op, sizes: Mapping[str, int], *, causal: bool = False) -> float:
    """FLOPs of one op in the forward pass, at the sizes of every dim."""
    if op.kind in ("matmul", "grouped_matmul"):
        return float(sum(_matmul_flops(op, weight, sizes) for weight in op.weights))
    if op.kind == "product":
        return 2.0 * prod(sizes[dim] for dim in {*op.inputs[0].dims, *op.inputs[1].dims})
    return _attention_flops(op, sizes, causal) if op.kind == "attention" else 0.0


def active_parameters(graph: Graph) -> float:
    """Parameters that one token meets: of the routed experts only `top_k`; embeddings and head included."""
    routed = sum(
        segment.count * elements(weight, segment_sizes(graph, segment))
        for segment in graph.segments
        for op in segment.block.ops
        for weight in op.weights
        if op.kind == "grouped_matmul"
    )
    idle_share = 1.0 - graph.sizes["top_k"] / graph.sizes["experts"] if routed else 0.0
    return parameters(graph) - idle_share * routed


def saved_tensors(block: Block) -> tuple[Tensor, ...]:
    """What one block keeps for its backward, each tensor once."""
    return tuple({tensor.name: tensor for op in block.ops for tensor in op.saved}.values())


def is_quantized(op: Op) -> bool:
    """Whether an op is a linear of a layer, which fp8 quantizes: not a router, nor a head."""
    return op.kind in ("matmul", "grouped_matmul") and op.region != "vocab" and op.name != "router"


def saved_bytes(block: Block, sizes: Mapping[str, int], activation_bytes: int = 2) -> int:
    """Bytes that one block keeps for its backward, at the sizes of every dim and without recomputation."""
    widths = {**ELEMENT_BYTES, "activation": activation_bytes, "no_gradient": activation_bytes}
    return sum(widths[tensor.element] * elements(tensor, sizes) for tensor in saved_tensors(block))


def _matmul_flops(op: Op, weight: Tensor, sizes: Mapping[str, int]) -> int:
    """2 m n k of one weight, of `top_k` experts per token; a bias lacks the summed dims and costs nothing."""
    if not set(op.contracted) <= set(weight.dims):
        return 0
    dims = {*op.inputs[0].dims, *weight.dims}
    return 2 * prod(sizes[dim] for dim in dims if dim != "experts" or op.kind == "matmul")


def _attention_flops(op: Op, sizes: Mapping[str, int], causal: bool) -> float:
    (keys,) = op.contracted
    pairs = _attended_pairs(sizes[query_dim(op)], sizes[keys], op.window, causal and op.causal)
    groups = prod(sizes[dim] for dim in query_groups(op))
    return 2.0 * groups * pairs * (sizes[op.inputs[0].dims[-1]] + sizes[op.output.dims[-1]])


def _attended_pairs(seq: int, keys: int, window: int | None, causal: bool) -> float:
    """Query-key pairs; under a causal mask s w - w^2 / 2 with w the window, or s^2 / 2 without one."""
    reach = min(window or keys, keys)
    return seq * reach - reach * reach / 2 if causal else float(seq * reach)
