"""The projections of multi-head latent attention: q, k and v through low-rank latents (DeepSeek-V2)."""

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Op, Tensor
from trainwright.model.operators import TOKENS, matmul, norm, tensor


def latent_projections(
    architecture: Architecture, source: Tensor
) -> tuple[tuple[Op, ...], tuple[Tensor, Tensor, Tensor]]:
    """The ops from `source` to rotated q, k and v, and those three tensors.

    The down projections are small and every head reads all of their output, so tensor parallelism
    replicates them: their region is `sequence`.
    """
    queries = _query_ops(architecture, source)
    q = queries[-1].output
    keys = _key_value_ops(architecture, source)
    nope, v = keys[-1].output, keys[-1].extra_outputs[0]
    shared_key = keys[0].extra_outputs[0]
    rotated_q = tensor("attention.rope.q", *q.dims)
    rotated_k = tensor("attention.rope.k", *q.dims)
    rope = Op(
        name="attention.rope",
        kind="elementwise",
        region="attention",
        inputs=(q, nope, shared_key),
        output=rotated_q,
        extra_outputs=(rotated_k,),
        frozen=("head_dim",),
    )
    return (*queries, *keys, rope), (rotated_q, rotated_k, v)


def _query_ops(arch: Architecture, source: Tensor) -> tuple[Op, ...]:
    q = tensor("attention.q", *TOKENS, "heads", "head_dim")
    if not arch.q_lora_rank:
        return (matmul("attention.q", "attention", source, q, ("hidden", "heads", "head_dim"), False),)
    latent = tensor("attention.q_down.out", *TOKENS, "q_rank")
    down = matmul("attention.q_down", "sequence", source, latent, ("hidden", "q_rank"), arch.qkv_bias)
    scaled = norm(arch, "attention.q_norm", latent)
    up = matmul("attention.q_up", "attention", scaled.output, q, ("q_rank", "heads", "head_dim"), False)
    return (down, scaled, up)


def _key_value_ops(arch: Architecture, source: Tensor) -> tuple[Op, ...]:
    latent = tensor("attention.kv_down.out", *TOKENS, "kv_rank")
    shared_key = tensor("attention.kv_down.rope", *TOKENS, "rope_dim")
    outputs = (latent, shared_key)
    biases = tuple(tensor(f"{t.name}.bias", t.dims[-1]) for t in outputs if arch.qkv_bias)
    down = Op(
        name="attention.kv_down",
        kind="matmul",
        region="sequence",
        inputs=(source,),
        output=latent,
        extra_outputs=(shared_key,),
        weights=(*(tensor(f"{t.name}.weight", "hidden", t.dims[-1]) for t in outputs), *biases),
        contracted=("hidden",),
        saved=(source,),
    )
    scaled = norm(arch, "attention.kv_norm", latent)
    up = Op(
        name="attention.kv_up",
        kind="matmul",
        region="attention",
        inputs=(scaled.output,),
        output=tensor("attention.k_nope", *TOKENS, "heads", "nope_dim"),
        extra_outputs=(tensor("attention.v", *TOKENS, "heads", "v_dim"),),
        weights=(
            tensor("attention.k_up.weight", "kv_rank", "heads", "nope_dim"),
            tensor("attention.v_up.weight", "kv_rank", "heads", "v_dim"),
        ),
        contracted=("kv_rank",),
        saved=(scaled.output,),
    )
    return (down, scaled, up)
