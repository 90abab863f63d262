"""A model as Megatron-LM's flags."""

from collections.abc import Iterator

from trainwright.export.flags import Flag, flag
from trainwright.model.architecture import Architecture, is_expert_layer


def model_flags(arch: Architecture, seq: int) -> tuple[Flag, ...]:
    """The flags of a decoder; what they cannot say, its capability lists."""
    return (
        *_sizes(arch, seq), *_position(arch, seq), *_norms(arch), *_biases(arch), *_attention(arch),
        *_latent(arch), *_experts(arch),
    )  # fmt: skip


def _sizes(arch: Architecture, seq: int) -> Iterator[Flag]:
    yield flag("--num-layers", arch.layers)
    yield flag("--hidden-size", arch.hidden)
    yield flag("--ffn-hidden-size", arch.ffn)
    yield flag("--num-attention-heads", arch.heads)
    if arch.kv_heads != arch.heads:
        yield flag("--group-query-attention")
        yield flag("--num-query-groups", arch.kv_heads)
    if not arch.kv_lora_rank:
        yield flag("--kv-channels", arch.head_dim)
    yield flag("--seq-length", seq)
    yield flag("--vocab-size", arch.vocab)
    if arch.gated:
        yield flag("--swiglu")
    if not arch.tied:
        yield flag("--untie-embeddings-and-output-weights")
    yield flag("--attention-dropout", 0.0)
    yield flag("--hidden-dropout", 0.1 if arch.dropout else 0.0)


def _position(arch: Architecture, seq: int) -> Iterator[Flag]:
    yield flag("--max-position-embeddings", arch.positions or seq)
    kind = "rope" if arch.rope else "learned_absolute" if arch.positions else "none"
    yield flag("--position-embedding-type", kind)


def _norms(arch: Architecture) -> Iterator[Flag]:
    yield flag("--normalization", "RMSNorm" if arch.norm == "rms" else "LayerNorm")
    if arch.qk_norm == "head":
        yield flag("--qk-layernorm")


def _bias_words(arch: Architecture) -> tuple[str, ...] | None:
    stated = (arch.qkv_bias, arch.output_bias, arch.mlp_bias)
    return {
        (True, True, True): (),
        (False, False, False): ("--disable-bias-linear",),
        (True, False, False): ("--disable-bias-linear", "--add-qkv-bias"),
    }.get(stated)


def _biases(arch: Architecture) -> Iterator[Flag]:
    for word in _bias_words(arch) or ():
        yield flag(word)


def _attention(arch: Architecture) -> Iterator[Flag]:
    if arch.window:
        yield flag("--window-size", f"{arch.window - 1},0")
    if arch.window and arch.global_every:
        yield flag("--window-attn-skip-freq", arch.global_every)
    if arch.sinks:
        yield flag("--softmax-type", "learnable")


def _latent(arch: Architecture) -> Iterator[Flag]:
    if not arch.kv_lora_rank:
        return
    yield flag("--multi-latent-attention")
    if arch.q_lora_rank:
        yield flag("--q-lora-rank", arch.q_lora_rank)
    yield flag("--kv-lora-rank", arch.kv_lora_rank)
    yield flag("--qk-head-dim", arch.qk_nope_dim)
    yield flag("--qk-pos-emb-head-dim", arch.qk_rope_dim)
    yield flag("--v-head-dim", arch.v_head_dim)


def _experts(arch: Architecture) -> Iterator[Flag]:
    if not arch.experts:
        return
    yield flag("--num-experts", arch.experts)
    yield flag("--moe-router-topk", arch.top_k)
    yield flag("--moe-ffn-hidden-size", arch.expert_ffn)
    yield flag("--moe-token-dispatcher-type", "alltoall")
    yield flag("--moe-grouped-gemm")
    if arch.shared_ffn:
        yield flag("--moe-shared-expert-intermediate-size", arch.shared_ffn)
    if arch.shared_gate:
        yield flag("--moe-shared-expert-gate")
    if arch.first_dense or arch.moe_every > 1:
        ones = "".join(str(int(is_expert_layer(arch, index))) for index in range(arch.layers))
        yield flag("--moe-layer-freq", f"[{','.join(ones)}]")
    if arch.router_bias:  # sigmoid scores and a bias that balances the load
        yield flag("--moe-router-score-function", "sigmoid")
        yield flag("--moe-router-enable-expert-bias")
