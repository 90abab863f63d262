"""Attention as operators: projections, rotation, the fused core, the output projection."""

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Op, Tensor
from trainwright.model.latent import latent_projections
from trainwright.model.operators import TOKENS, matmul, norm_weights, tensor

Heads = tuple[Tensor, Tensor, Tensor]  # q, k, v


def attention_ops(
    architecture: Architecture, source: Tensor, window: int | None, causal: bool
) -> tuple[Op, ...]:
    """Self-attention on `source`; the last op's output is the branch."""
    if architecture.kv_lora_rank:
        ops, heads = latent_projections(architecture, source)
    else:
        ops, heads = _projections(architecture, source)
    core = attention_core(architecture, "attention", heads, keys="seq_kv", window=window, causal=causal)
    return (*ops, core, _output(architecture, "attention", core.output))


def cross_attention_ops(architecture: Architecture, source: Tensor) -> tuple[Op, ...]:
    """Attention from the decoder's `source` to the encoder's output."""
    encoded = tensor("encoded", "batch", "seq_enc", "hidden")
    q = tensor("cross.q", *TOKENS, "heads", "head_dim")
    k = tensor("cross.k", "batch", "seq_enc", "kv_heads", "head_dim")
    v = tensor("cross.v", "batch", "seq_enc", "kv_heads", "v_dim")
    kv = Op(
        name="cross.kv",
        kind="matmul",
        region="attention",
        inputs=(encoded,),
        output=k,
        extra_outputs=(v,),
        weights=_projection_weights(architecture, "cross", (k, v)),
        contracted=("hidden",),
        # `encoded` is saved once, by the encoder's final norm, not once per decoder layer
    )
    query = matmul("cross.q", "attention", source, q, ("hidden", "heads", "head_dim"), architecture.qkv_bias)
    core = attention_core(architecture, "cross", (q, k, v), keys="seq_enc", window=None, causal=False)
    return (query, kv, core, _output(architecture, "cross", core.output))


def attention_core(
    architecture: Architecture, prefix: str, heads: Heads, *, keys: str, window: int | None, causal: bool
) -> Op:
    """Fused attention over the dim `keys`: it saves its operands, its result and its row statistics."""
    q, k, v = heads
    output = tensor(f"{prefix}.core.out", *TOKENS, "heads", "v_dim")
    statistics = tensor(f"{prefix}.core.statistics", "batch", "heads", "seq", element="fp32")
    return Op(
        name=f"{prefix}.core",
        kind="attention",
        region="attention",
        inputs=(q, *(tensor(t.name, "batch", keys, *t.dims[-2:]) for t in (k, v))),
        output=output,
        weights=(tensor(f"{prefix}.sinks", "heads"),) if architecture.sinks else (),
        contracted=(keys,),
        saved=(q, k, v, output, statistics),
        window=window,
        causal=causal,
    )


def _projections(arch: Architecture, source: Tensor) -> tuple[tuple[Op, ...], Heads]:
    q = tensor("attention.q", *TOKENS, "heads", "head_dim")
    k = tensor("attention.k", *TOKENS, "kv_heads", "head_dim")
    v = tensor("attention.v", *TOKENS, "kv_heads", "v_dim")
    qkv = Op(
        name="attention.qkv",
        kind="matmul",
        region="attention",
        inputs=(source,),
        output=q,
        extra_outputs=(k, v),
        weights=_projection_weights(arch, "attention", (q, k, v)),
        contracted=("hidden",),
        saved=(source,),
    )
    ops = [qkv]
    if arch.qk_norm != "none":
        ops.append(_qk_norm(arch, q, k))
        q, k = ops[-1].output, ops[-1].extra_outputs[0]
    if arch.rope:
        ops.append(_rope(q, k))
        q, k = ops[-1].output, ops[-1].extra_outputs[0]
    return tuple(ops), (q, k, v)


def _projection_weights(arch: Architecture, prefix: str, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    heads = [(output.name.rpartition(".")[2], output.dims[-2:]) for output in outputs]
    weights = [tensor(f"{prefix}.{name}.weight", "hidden", *dims) for name, dims in heads]
    biases = [tensor(f"{prefix}.{name}.bias", *dims) for name, dims in heads if arch.qkv_bias]
    return (*weights, *biases)


def _qk_norm(arch: Architecture, q: Tensor, k: Tensor) -> Op:
    dims = {"head": 1, "full": 2}[arch.qk_norm]
    name = "attention.qk_norm"
    return Op(
        name=name,
        kind="norm",
        region="attention",
        inputs=(q, k),
        output=tensor(f"{name}.q", *q.dims),
        extra_outputs=(tensor(f"{name}.k", *k.dims),),
        weights=(
            *norm_weights(arch, f"{name}.q", *q.dims[-dims:]),
            *norm_weights(arch, f"{name}.k", *k.dims[-dims:]),
        ),
        saved=(q, k),
    )


def _rope(q: Tensor, k: Tensor) -> Op:
    """A rotation: its backward is another rotation and reads nothing."""
    return Op(
        name="attention.rope",
        kind="elementwise",
        region="attention",
        inputs=(q, k),
        output=tensor("attention.rope.q", *q.dims),
        extra_outputs=(tensor("attention.rope.k", *k.dims),),
        frozen=("head_dim",),  # its halves are turned together
    )


def _output(arch: Architecture, prefix: str, source: Tensor) -> Op:
    name = f"{prefix}.output"
    output = tensor(f"{name}.out", *TOKENS, "hidden")
    return matmul(name, "attention", source, output, ("heads", "v_dim", "hidden"), arch.output_bias)
