"""What stands before and after the Evoformer: the features and the last pass in, structure and losses out."""

from trainwright.model.architecture import Architecture
from trainwright.model.axial import MSA, PAIR
from trainwright.model.ends import loss_op
from trainwright.model.graph import Block, Op, Tensor
from trainwright.model.operators import TOKENS, elementwise, matmul, norm, projections, tensor

_SINGLE = (*TOKENS, "single")


def embedding_block(architecture: Architecture) -> Block:
    """The alignment and the pairs from features, relative positions, and what the last pass left of both."""
    msa_features = tensor("msa_features", *MSA[:-1], "msa_features")
    target = tensor("target_features", *TOKENS, "target_features")
    rows = tensor("embedding.rows", *MSA)
    row = tensor("embedding.row", *TOKENS, "hidden")
    left, right = (tensor(f"embedding.{side}", *TOKENS, "pair_hidden") for side in ("left", "right"))
    msa = projections("embedding.msa", "sequence", msa_features, (rows,), biased=(rows,))
    once = (row, left, right)
    per_residue = projections("embedding.target", "sequence", target, once, biased=once)
    positions = _positions()
    recycled = _recycled_ops(architecture)
    ends = (
        _sum("embedding.stream", MSA, rows, row, recycled[0].output),
        _sum(
            "embedding.pair",
            PAIR,
            left,
            tensor(right.name, "batch", "seq_kv", "pair_hidden"),
            positions.output,
            recycled[1].output,
        ),
    )
    streams = (("stream", "embedding.stream"), ("pair", "embedding.pair"))
    return Block(name="embedding", ops=(msa, per_residue, positions, *recycled, *ends), outputs=streams)


def structure_block(architecture: Architecture) -> Block:
    """One round of the structure module on the first row, and the losses of frames, distances and rows."""
    stream, pair = tensor("stream", *MSA), tensor("pair", *PAIR)
    ops = [*_single_ops(stream)]
    ops += _structure_ops(architecture, ops[-1].output, pair)
    frames = tensor("frames.out", *TOKENS, "frame")
    ops.append(matmul("frames", "sequence", ops[-1].output, frames, ("single", "frame"), bias=True))
    distances = tensor("distances.out", *PAIR[:-1], "distances")
    masked = tensor("masked_rows.out", *MSA[:-1], "residue_types")
    for source, logits in ((pair, distances), (stream, masked)):
        name = logits.name.removesuffix(".out")
        weight = (source.dims[-1], logits.dims[-1])
        ops.append(matmul(name, "sequence", source, logits, weight, bias=True))
    losses = [loss_op(each, f"{each.name.removesuffix('.out')}.loss") for each in (frames, distances, masked)]
    return Block(name="head", ops=(*ops, *losses))


def _positions() -> Op:
    return Op(
        name="embedding.positions",
        kind="gather",
        region="sequence",
        inputs=(),
        output=tensor("embedding.positions.out", *PAIR[1:]),
        weights=(tensor("embedding.positions.weight", "relative_positions", "pair_hidden"),),
    )


def _recycled_ops(arch: Architecture) -> tuple[Op, ...]:
    """Norms of the first row and of the pairs as the last pass left them; no gradient goes back there."""
    row, pair = tensor("previous_row", *TOKENS, "hidden"), tensor("previous_pair", *PAIR)
    return (norm(arch, "recycle.row", row), norm(arch, "recycle.pair", pair))


def _sum(name: str, dims: tuple[str, ...], *sources: Tensor) -> Op:
    return elementwise(name, "sequence", sources, tensor(name, *dims), saves=False)


def _single_ops(stream: Tensor) -> tuple[Op, ...]:
    """The first row of the alignment, as one vector per residue."""
    row = tensor("single.row", *TOKENS, "hidden")
    first = Op(name="single.row", kind="gather", region="sequence", inputs=(stream,), output=row)
    single = tensor("single.out", *_SINGLE)
    return (first, matmul("single", "sequence", row, single, ("hidden", "single"), bias=True))


def _structure_ops(arch: Architecture, single: Tensor, pair: Tensor) -> tuple[Op, ...]:
    """Attention between residues biased by their pair, and a transition; replicated over tensor ranks."""
    before, pair_norm = norm(arch, "structure.norm", single), norm(arch, "structure.pair_norm", pair)
    heads = ("structure_heads", "structure_dim")
    q, k, v = (tensor(f"structure.{part}", *TOKENS, *heads) for part in "qkv")
    qkv = projections("structure.qkv", "sequence", before.output, (q, k, v), biased=(q, k, v))
    bias = tensor("structure.bias.out", *PAIR[:-1], "structure_heads")
    biasing = matmul(
        "structure.bias", "sequence", pair_norm.output, bias, ("pair_hidden", "structure_heads"), bias=True
    )
    mixed = tensor("structure.core.out", *TOKENS, *heads)
    core = Op(
        name="structure.core",
        kind="attention",
        region="sequence",
        inputs=(q, *(tensor(each.name, "batch", "seq_kv", *heads) for each in (k, v)), bias),
        output=mixed,
        contracted=("seq_kv",),
        saved=(q, k, v, bias, mixed),
        causal=False,
    )
    branch = tensor("structure.output.out", *_SINGLE)
    output = matmul("structure.output", "sequence", mixed, branch, (*heads, "single"), bias=True)
    total = _sum("structure.residual", _SINGLE, single, branch)
    wide = tensor("structure.transition.out", *TOKENS, "single_out")
    transition = matmul(
        "structure.transition", "sequence", total.output, wide, ("single", "single_out"), bias=True
    )
    state = tensor("structure.state", *_SINGLE)
    active = elementwise("structure.activation", "sequence", (wide,), state, saves=True)
    return (before, pair_norm, qkv, biasing, core, output, total, transition, active)
