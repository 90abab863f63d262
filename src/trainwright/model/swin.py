"""Swin-Transformer v2 as a graph: windows of patches, in stages of fewer and wider tokens."""

from dataclasses import replace

from trainwright.model.architecture import Architecture
from trainwright.model.attention import attention_core
from trainwright.model.ends import class_head_block
from trainwright.model.ffn import ffn_ops
from trainwright.model.graph import Block, Graph, Op, Segment, Tensor
from trainwright.model.operators import (
    TOKENS,
    elementwise,
    hidden_state,
    matmul,
    norm,
    projections,
    residual,
    tensor,
)

_BIAS_HIDDEN = 512  # of the small network from an offset between two patches to its bias
_QUAD = 4  # neighbours, 2 x 2, that merging joins


def swin_graph(architecture: Architecture) -> Graph:
    """Patches, the layers of each stage, classes (Liu et al. 2022).

    From one stage to the next, tokens fall to a quarter while the hidden state and the heads double; each
    stage has its own `seq` and `sizes`. The first layer of a later stage begins with the merging.
    """
    stages = range(len(architecture.depths))
    layers = [segment for stage in stages for segment in _stage(architecture, stage)]
    first = replace(layers[0], block=_patch_block(architecture), count=1)
    last = replace(layers[-1], block=_class_block(architecture), count=1)
    return Graph(
        name=architecture.name,
        segments=(first, *layers, last),
        sizes=_sizes(architecture, 0) | _common_sizes(architecture),
    )


def _stage(arch: Architecture, stage: int) -> tuple[Segment, ...]:
    depth, window = arch.depths[stage], _window_side(arch, stage) ** 2
    seq, sizes = _side(arch, stage) ** 2, _sizes(arch, stage) if stage else {}
    plain = Segment(block=_layer_block(arch, window, merges=False), count=depth, seq=seq, sizes=sizes)
    if not stage:
        return (plain,)
    merging = replace(plain, block=_layer_block(arch, window, merges=True), count=1)
    return (merging, replace(plain, count=depth - 1)) if depth > 1 else (merging,)


def _side(arch: Architecture, stage: int) -> int:
    return arch.image_size // arch.patch_size >> stage


def _window_side(arch: Architecture, stage: int) -> int:
    return min(arch.window, _side(arch, stage))


def _sizes(arch: Architecture, stage: int) -> dict[str, int]:
    """The sizes that change from stage to stage; `seq_in` and `hidden_in` are those of the stage before."""
    side = _window_side(arch, stage)
    return {
        "hidden": arch.hidden << stage,
        "hidden_in": arch.hidden << stage >> 1,
        "seq_in": _QUAD * _side(arch, stage) ** 2,
        "heads": arch.heads << stage,
        "kv_heads": arch.heads << stage,
        "ffn": arch.ffn << stage,
        "offsets": (2 * side - 1) ** 2,
        "area": side**2,
        "area_kv": side**2,
    }


def _common_sizes(arch: Architecture) -> dict[str, int]:
    return {
        "head_dim": arch.head_dim,
        "v_dim": arch.v_head_dim,
        "patch": arch.channels * arch.patch_size**2,
        "classes": arch.classes,
        "quad": _QUAD,
        "coordinate": 2,
        "bias_hidden": _BIAS_HIDDEN,
    }


def _patch_block(arch: Architecture) -> Block:
    pixels = tensor("pixels", *TOKENS, "patch")
    patches = matmul("patches", "sequence", pixels, hidden_state("patches.out"), ("patch", "hidden"), True)
    return Block(name="embedding", ops=(patches, norm(arch, "embedding_norm", patches.output)))


def _class_block(arch: Architecture) -> Block:
    """Final norm, the mean over patches, their class, the loss."""
    final, *rest = class_head_block(arch).ops
    mean = elementwise("pool", "sequence", (final.output,), rest[0].inputs[0], saves=False)
    return Block(name="head", ops=(final, replace(mean, contracted=("seq",)), *rest))


def _layer_block(arch: Architecture, window: int, *, merges: bool) -> Block:
    """Attention in windows and a feed-forward, each with its norm after it and before the sum."""
    merge = _merge_ops(arch) if merges else ()
    stream = merge[-1].output if merge else hidden_state("stream")
    attention = _attention_ops(arch, stream, window)
    norm1 = norm(arch, "norm1", attention[-1].output)
    middle = residual(arch, "residual1", stream, norm1.output)
    ffn = ffn_ops(arch, middle.output)
    norm2 = norm(arch, "norm2", ffn[-1].output)
    last = residual(arch, "residual2", middle.output, norm2.output)
    return Block(
        name="layer.merge" if merges else "layer", ops=(*merge, *attention, norm1, middle, *ffn, norm2, last)
    )


def _merge_ops(arch: Architecture) -> tuple[Op, ...]:
    """Four neighbours side by side, to twice the width of one."""
    join = Op(
        name="merge.join",
        kind="permute",
        region="sequence",
        inputs=(tensor("stream", "batch", "seq_in", "hidden_in"),),
        output=tensor("merge.join.out", *TOKENS, "quad", "hidden_in"),
    )
    weight = ("quad", "hidden_in", "hidden")
    merge = matmul("merge", "sequence", join.output, hidden_state("merge.out"), weight, bias=False)
    return (join, merge, norm(arch, "merge.norm", merge.output))


def _attention_ops(arch: Architecture, stream: Tensor, window: int) -> tuple[Op, ...]:
    """Cosine attention inside windows, which are cut out of the (rolled) image and put back."""
    cut = elementwise(
        "attention.partition", "sequence", (stream,), hidden_state("attention.partition.out"), saves=False
    )
    q, k = (tensor(f"attention.{name}", *TOKENS, "heads", "head_dim") for name in "qk")
    v = tensor("attention.v", *TOKENS, "heads", "v_dim")
    qkv = projections("attention.qkv", "attention", cut.output, (q, k, v), biased=(q, v))
    cosine = _cosine(q, k)
    unit = (cosine.output, cosine.extra_outputs[0], v)
    bias = _bias_ops()
    core = attention_core(arch, "attention", unit, keys="seq_kv", window=window, causal=False)
    core = replace(core, inputs=(*core.inputs, bias[-1].output))
    output = hidden_state("attention.output.out")
    back = matmul("attention.output", "attention", core.output, output, ("heads", "v_dim", "hidden"), True)
    join = elementwise(
        "attention.join", "sequence", (output,), hidden_state("attention.join.out"), saves=False
    )
    return (cut, qkv, cosine, *bias, core, back, join)


def _cosine(q: Tensor, k: Tensor) -> Op:
    """Queries and keys of length one, the queries times a learned scale per head."""
    name = "attention.cosine"
    return Op(
        name=name,
        kind="norm",
        region="attention",
        inputs=(q, k),
        output=tensor(f"{name}.q", *q.dims),
        extra_outputs=(tensor(f"{name}.k", *k.dims),),
        weights=(tensor(f"{name}.scale", "heads"),),
        saved=(q, k),
    )


def _bias_ops() -> tuple[Op, ...]:
    """The bias of each pair of patches in a window, by a small network from their log-spaced offset."""
    offsets = tensor("coordinates", "offsets", "coordinate")
    wide = tensor("attention.bias.up.out", "offsets", "bias_hidden")
    up = matmul("attention.bias.up", "attention", offsets, wide, ("coordinate", "bias_hidden"), bias=True)
    active = tensor("attention.bias.activation.out", *wide.dims)
    relu = elementwise("attention.bias.activation", "attention", (wide,), active, saves=True)
    table = tensor("attention.bias.down.out", "offsets", "heads")
    down = matmul("attention.bias.down", "attention", active, table, ("bias_hidden", "heads"), bias=False)
    spread = Op(
        name="attention.bias",
        kind="gather",
        region="attention",
        inputs=(table,),
        output=tensor("attention.bias.out", "heads", "area", "area_kv"),
        saved=(table,),
    )
    return (up, relu, down, spread)
