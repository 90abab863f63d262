"""AlphaFold2 as a graph: Evoformer blocks on an alignment and on pairs of residues, with recycling."""

from trainwright.model.architecture import Architecture
from trainwright.model.axial import MSA, PAIR, Axis, attention_branch, bias_op, sum_op, transition_ops
from trainwright.model.evoformer_ends import embedding_block, structure_block
from trainwright.model.graph import Block, Graph, Op, Segment, Tensor
from trainwright.model.operators import norm, projections, tensor
from trainwright.model.triangle import triangle_attention_ops, triangle_product_ops

_OUTER = 32  # channels of each side of the outer product
_SINGLE = 384  # channels per residue in the structure module
_STRUCTURE_HEADS, _STRUCTURE_DIM = 12, 16

_ROW = Axis(
    keys=("batch", "rows", "seq_kv"),
    contracted="seq_kv",
    heads=("heads", "head_dim"),
    bias=("batch", "seq", "seq_kv"),
)
_COLUMN = Axis(keys=("batch", "rows_kv", "seq"), contracted="rows_kv", heads=("heads", "head_dim"))


def evoformer_graph(architecture: Architecture) -> Graph:
    """Embedding, Evoformer blocks, structure module and losses (Jumper et al. 2021).

    `seq` are residues, `rows` the sequences of the alignment. Left out: templates, the stack of extra
    sequences, the invariant points of the structure module and its seven further iterations.
    """
    return Graph(
        name=architecture.name,
        segments=(
            Segment(block=embedding_block(architecture), count=1),
            Segment(block=_evoformer_block(architecture), count=architecture.layers),
            Segment(block=structure_block(architecture), count=1),
        ),
        sizes=_sizes(architecture),
        passes=architecture.passes,
    )


def _sizes(arch: Architecture) -> dict[str, int]:
    return {
        "hidden": arch.hidden,
        "heads": arch.heads,
        "kv_heads": arch.heads,
        "head_dim": arch.head_dim,
        "v_dim": arch.head_dim,
        "ffn": arch.ffn,
        "rows": arch.rows,
        "rows_kv": arch.rows,
        "pair_hidden": arch.pair_hidden,
        "pair_heads": arch.pair_heads,
        "pair_dim": arch.pair_hidden // arch.pair_heads,
        "pair_ffn": 4 * arch.pair_hidden,
        "triangle": arch.pair_hidden,
        "outer": _OUTER,
        "outer_kv": _OUTER,
        "msa_features": 49,
        "target_features": 22,
        "relative_positions": 65,
        "single": _SINGLE,
        "single_out": _SINGLE,
        "structure_heads": _STRUCTURE_HEADS,
        "structure_dim": _STRUCTURE_DIM,
        "frame": 6,
        "distances": 64,
        "residue_types": 23,
    }


def _evoformer_block(arch: Architecture) -> Block:
    """The alignment's three steps, then the pairs': what the alignment tells them, and their triangles."""
    ops = [*_msa_ops(arch, tensor("stream", *MSA), tensor("pair", *PAIR))]
    stream = ops[-1].output
    ops += _outer_ops(arch, stream, tensor("pair", *PAIR))
    ops += triangle_product_ops(arch, "outgoing", ops[-1].output)
    ops += triangle_product_ops(arch, "incoming", ops[-1].output)
    ops += triangle_attention_ops(arch, "starting", ops[-1].output)
    ops += triangle_attention_ops(arch, "ending", ops[-1].output)
    ops += transition_ops(arch, "pair_transition", ops[-1].output, "pair_ffn")
    streams = (("stream", stream.name), ("pair", ops[-1].output.name))
    return Block(name="layer", ops=tuple(ops), outputs=streams)


def _msa_ops(arch: Architecture, stream: Tensor, pair: Tensor) -> tuple[Op, ...]:
    """Attention along each row with a bias from the pairs, along each column, and a transition."""
    row_norm, pair_norm = norm(arch, "row.norm", stream), norm(arch, "row.pair_norm", pair)
    bias = bias_op("row", pair_norm.output, "heads")
    row = attention_branch("row", row_norm.output, _ROW, bias.output)
    after_row = sum_op("row.residual", stream, row[-1].output)
    column_norm = norm(arch, "column.norm", after_row.output)
    column = attention_branch("column", column_norm.output, _COLUMN, None)
    after_column = sum_op("column.residual", after_row.output, column[-1].output)
    transition = transition_ops(arch, "msa_transition", after_column.output, "ffn")
    return (row_norm, pair_norm, bias, *row, after_row, column_norm, *column, after_column, *transition)


def _outer_ops(arch: Architecture, stream: Tensor, pair: Tensor) -> tuple[Op, ...]:
    """The mean over rows of the outer product of two residues' columns, added to their pair."""
    before = norm(arch, "outer.norm", stream)
    left = tensor("outer.left", *MSA[:-1], "outer")
    right = tensor("outer.right", *MSA[:-1], "outer_kv")
    sides = projections("outer.sides", "sequence", before.output, (left, right), biased=(left, right))
    read = tensor(right.name, "batch", "rows", "seq_kv", "outer_kv")
    total = tensor("outer.product.out", *PAIR[:-1], "outer", "outer_kv")
    product = Op(
        name="outer.product",
        kind="product",
        region="sequence",
        inputs=(left, read),
        output=total,
        contracted=("rows",),
        saved=(left, right),
    )
    output = tensor("outer.output.out", *PAIR)
    back = Op(
        name="outer.output",
        kind="matmul",
        region="sequence",
        inputs=(total,),
        output=output,
        weights=(
            tensor("outer.output.weight", "outer", "outer_kv", "pair_hidden"),
            tensor("outer.output.bias", "pair_hidden"),
        ),
        contracted=("outer", "outer_kv"),
        saved=(total,),
    )
    return (before, sides, product, back, sum_op("outer.residual", pair, output))
