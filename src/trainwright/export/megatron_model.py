"""A model as Megatron-LM's flags."""

from collections.abc import Iterator

from trainwright.export.ability import Gap
from trainwright.export.flags import Flag, flag
from trainwright.model.architecture import Architecture, is_expert_layer

_PLAIN = "Megatron-LM's GPT has no setting for it"


def model_flags(arch: Architecture, seq: int) -> tuple[Flag, ...]:
    """The flags of a decoder; what they cannot say is among `model_gaps`."""
    return (
        *_sizes(arch, seq), *_position(arch, seq), *_norms(arch), *_biases(arch), *_attention(arch),
        *_latent(arch), *_experts(arch),
    )  # fmt: skip


def model_gaps(arch: Architecture) -> Iterator[Gap]:
    """What of a model the flags cannot say."""
    if arch.kind != "decoder":
        yield Gap(knob="model kind", value=arch.kind, reason="pretrain_gpt.py trains decoders")
    wanted = {
        "norm_placement": "pre", "post_norms": False, "final_norm": True, "parallel_block": False,
        "embedding_norm": False, "head_bias": False, "router_bias": False, "passes": 1,
    }  # fmt: skip
    for field, usual in wanted.items():
        if getattr(arch, field) != usual:
            yield Gap(knob=f"model {field}", value=getattr(arch, field), reason=_PLAIN)
    if arch.norm_bias != (arch.norm == "layer"):
        yield Gap(knob="model norm_bias", value=arch.norm_bias, reason=_PLAIN)
    if arch.qk_norm == "full":
        yield Gap(knob="model qk_norm", value="full", reason="Megatron-LM normalizes each head")
    if _bias_words(arch) is None:
        said = f"qkv {arch.qkv_bias}, output {arch.output_bias}, mlp {arch.mlp_bias}"
        yield Gap(knob="model biases", value=said, reason="Megatron-LM has all, none, or those of qkv")
    if arch.v_head_dim != arch.head_dim and not arch.kv_lora_rank:
        yield Gap(knob="model v_head_dim", value=arch.v_head_dim, reason="needs latent attention")
    if arch.shared_gate and not arch.shared_ffn:
        yield Gap(knob="model shared_gate", value=True, reason="needs shared experts")


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
