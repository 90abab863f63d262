"""Hugging Face configurations of mixture-of-experts decoders."""

from trainwright.errors import BadInput
from trainwright.model.config_dense import llama, qwen3, qwen_window
from trainwright.model.config_fields import PLANNED_SEQ, Config, Fields, llama_like, text_part


def mixtral(config: Config) -> Fields:
    return llama_like(config) | {
        "experts": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "window": config.whole("sliding_window", 0),
    }


def dbrx(config: Config) -> Fields:
    """Layer norms without bias; sizes of attention and experts in parts of their own."""
    attention, ffn = config.part("attn_config"), config.part("ffn_config")
    config.seen.add("num_key_value_heads")  # of which attn_config has the number
    ffn.seen.add("hidden_size")  # as d_model
    return {
        "layers": config.whole("n_layers"),
        "hidden": config.whole("d_model"),
        "heads": config.whole("n_heads"),
        "kv_heads": attention.whole("kv_n_heads", 1),
        "ffn": ffn.whole("ffn_hidden_size"),
        "gated": True,
        "max_seq": min(config.whole("max_seq_len", PLANNED_SEQ), PLANNED_SEQ),
        "vocab": config.whole("vocab_size"),
        "tied": config.flag("tie_word_embeddings", False),
        "norm": "layer",
        "norm_bias": False,
        "experts": ffn.whole("moe_num_experts"),
        "top_k": ffn.whole("moe_top_k"),
    }


def qwen2_moe(config: Config) -> Fields:
    return llama_like(config) | {
        **_routed(config, "num_experts", "num_local_experts"),
        "qkv_bias": config.flag("qkv_bias", True),
        "shared_ffn": config.whole("shared_expert_intermediate_size"),
        "shared_gate": True,
        "window": qwen_window(config),
        **_sparse_layers(config),
    }


def qwen3_moe(config: Config) -> Fields:
    return qwen3(config) | {
        **_routed(config, "num_experts", "num_local_experts"),
        **_sparse_layers(config),
    }


def _sparse_layers(config: Config) -> Fields:
    """Which layers have experts: every nth, but not the first ones that `mlp_only_layers` lists."""
    dense = config.values.get("mlp_only_layers") or []
    config.seen.add("mlp_only_layers")
    every = config.whole("decoder_sparse_step", 1)
    if dense and (not isinstance(dense, list) or every > 1 or dense != [*range(len(dense))]):
        rule = "lists other layers than the first"
        thing = f"{config.source}: mlp_only_layers"
        raise BadInput(thing, str(dense)[:80], rule, "describe the model in TOML")
    return {"moe_every": every, "first_dense": len(dense) if dense else 0}


def deepseek_v2(config: Config) -> Fields:
    """Latent attention; its key heads are as many as its query heads, whatever `num_key_value_heads` says."""
    fields = llama_like(config) | {
        "kv_heads": 0,
        "head_dim": 0,
        "q_lora_rank": config.whole("q_lora_rank", 0),
        "kv_lora_rank": config.whole("kv_lora_rank"),
        "qk_nope_dim": config.whole("qk_nope_head_dim"),
        "qk_rope_dim": config.whole("qk_rope_head_dim"),
        "v_head_dim": config.whole("v_head_dim"),
    }
    return fields | {
        **_routed(config, "n_routed_experts"),
        "shared_experts": config.whole("n_shared_experts", 0),
        "first_dense": config.whole("first_k_dense_replace", 0),
        "moe_every": config.whole("moe_layer_freq", 1),
    }


def deepseek_v3(config: Config) -> Fields:
    """As V2, with one balancing bias per expert."""
    return deepseek_v2(config) | {"router_bias": True}


def gpt_oss(config: Config) -> Fields:
    return llama(config) | {
        "experts": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "router_bias": True,
        "sinks": True,
        "window": config.whole("sliding_window", 128),
        "global_every": 2,
    }


def llama4_text(config: Config) -> Fields:
    """Chunked attention counts as a window of one chunk."""
    _check_moe_layers(config)
    return llama_like(config) | {
        "ffn": config.whole("intermediate_size_mlp"),
        "experts": config.whole("num_local_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "expert_ffn": config.whole("intermediate_size"),
        "shared_experts": 1,
        "moe_every": config.whole("interleave_moe_layer_step", 1),
        "window": config.whole("attention_chunk_size", 8192),
        "global_every": config.whole("no_rope_layer_interval", 4),
    }


def _check_moe_layers(config: Config) -> None:
    """Raise if `moe_layers` lists other layers than every nth."""
    config.seen.add("moe_layers")
    listed, every = config.values.get("moe_layers"), config.whole("interleave_moe_layer_step", 1)
    layers = config.whole("num_hidden_layers")
    if listed is not None and listed != [at for at in range(layers) if every and (at + 1) % every == 0]:
        rule = "lists other layers than every nth of interleave_moe_layer_step"
        raise BadInput(f"{config.source}: moe_layers", str(listed)[:80], rule, "describe the model in TOML")


def llama4(config: Config) -> Fields:
    return llama4_text(text_part(config))


def grok_1(config: Config) -> Fields:
    return llama_like(config, tied=True) | {
        "experts": config.whole("num_experts"),
        "top_k": config.whole("num_experts_per_tok"),
        "post_norms": True,
    }


def _routed(config: Config, *counts: str) -> Fields:
    config.seen.update(counts)
    return {
        "experts": config.first(*counts),
        "top_k": config.whole("num_experts_per_tok"),
        "expert_ffn": config.whole("moe_intermediate_size"),
    }
