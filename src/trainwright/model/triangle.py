"""Triangle updates of a pair representation: the pair of i and j learns from those that both make with k."""

from typing import Literal

from trainwright.model.architecture import Architecture
from trainwright.model.axial import PAIR, Axis, attention_branch, bias_op, renamed, sum_op
from trainwright.model.graph import Op, Tensor
from trainwright.model.operators import elementwise, matmul, norm, projections, tensor

# i is `seq`, j is `seq_kv`, k is `seq_third`.
_EDGES = {
    "outgoing": (("batch", "seq", "seq_third"), ("batch", "seq_kv", "seq_third")),  # i to k, j to k
    "incoming": (("batch", "seq_third", "seq"), ("batch", "seq_third", "seq_kv")),  # k to i, k to j
}
_AXES = {
    "starting": Axis(
        keys=("batch", "seq", "seq_third"),
        contracted="seq_third",
        heads=("pair_heads", "pair_dim"),
        bias=("batch", "seq_kv", "seq_third"),
    ),
    "ending": Axis(
        keys=("batch", "seq_third", "seq_kv"),
        contracted="seq_third",
        heads=("pair_heads", "pair_dim"),
        bias=("batch", "seq_third", "seq"),
    ),
}


def triangle_product_ops(
    architecture: Architecture, name: Literal["outgoing", "incoming"], pair: Tensor
) -> tuple[Op, ...]:
    """The sum over k of the product of two gated edges, gated again and added to the pair."""
    before = norm(architecture, f"{name}.norm", pair)
    edges = _edge_ops(name, before.output)
    left, right = edges[-1].output, edges[-1].extra_outputs[0]
    product = Op(
        name=f"{name}.product",
        kind="product",
        region="sequence",
        inputs=tuple(
            renamed(side, *dims, "triangle") for side, dims in zip((left, right), _EDGES[name], strict=True)
        ),
        output=tensor(f"{name}.product.out", *PAIR[:-1], "triangle"),
        contracted=("seq_third",),
        saved=(left, right),
    )
    after = norm(architecture, f"{name}.product_norm", product.output)
    result = tensor(f"{name}.output.out", *PAIR)
    output = matmul(
        f"{name}.output", "sequence", after.output, result, ("triangle", "pair_hidden"), bias=True
    )
    gate = tensor(f"{name}.gate.out", *PAIR[:-1], "triangle")
    gating = matmul(f"{name}.gate", "sequence", before.output, gate, ("pair_hidden", "triangle"), bias=True)
    scaled = tensor(f"{name}.scaled", *PAIR)
    scale = elementwise(f"{name}.scale", "sequence", (result, renamed(gate, *PAIR)), scaled, saves=True)
    return (before, *edges, product, after, output, gating, scale, sum_op(f"{name}.residual", pair, scaled))


def triangle_attention_ops(
    architecture: Architecture, name: Literal["starting", "ending"], pair: Tensor
) -> tuple[Op, ...]:
    """Attention among the pairs that share their first (or last) residue, biased by the third side."""
    before = norm(architecture, f"{name}.norm", pair)
    bias = bias_op(name, before.output, "pair_heads")
    branch = attention_branch(name, before.output, _AXES[name], bias.output)
    return (before, bias, *branch, sum_op(f"{name}.residual", pair, branch[-1].output))


def _edge_ops(name: str, source: Tensor) -> tuple[Op, ...]:
    """Both edges of each pair, and a gate for each."""
    parts = tuple(
        tensor(f"{name}.{part}", *PAIR[:-1], "triangle")
        for part in ("left", "right", "left_gate", "right_gate")
    )
    edges = projections(f"{name}.edges", "sequence", source, parts, biased=parts)
    gated = Op(
        name=f"{name}.gated",
        kind="elementwise",
        region="sequence",
        inputs=parts,
        output=tensor(f"{name}.gated.left", *parts[0].dims),
        extra_outputs=(tensor(f"{name}.gated.right", *parts[0].dims),),
        saved=parts,
    )
    return (edges, gated)
