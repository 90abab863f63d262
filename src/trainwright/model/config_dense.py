"""Hugging Face configurations of dense decoders."""

from trainwright.errors import BadInput
from trainwright.model.config_fields import Config, Fields, biased, llama_like, sizes, text_part


def gpt2(config: Config) -> Fields:
    return biased() | {
        **_short_names(config),
        "positions": config.whole("n_positions", 1024),
        "max_seq": config.whole("n_positions", 1024),
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("resid_pdrop", 0.1) > 0,
    }


def gptj(config: Config) -> Fields:
    return _short_names(config) | {
        "max_seq": config.whole("n_positions", 2048),
        "norm": "layer",
        "mlp_bias": True,
        "head_bias": True,
        "parallel_block": True,
        "shared_norm": True,
        "tied": config.flag("tie_word_embeddings", False),
    }


def gpt_neox(config: Config) -> Fields:
    bias = config.flag("attention_bias", True)
    return sizes(config) | {
        "norm": "layer",
        "qkv_bias": bias,
        "output_bias": bias,
        "mlp_bias": True,
        "parallel_block": config.flag("use_parallel_residual", True),
        "tied": config.flag("tie_word_embeddings", False),
    }


def opt(config: Config) -> Fields:
    hidden = config.whole("hidden_size")
    if config.whole("word_embed_proj_dim", hidden) != hidden:
        raise BadInput(
            f"{config.source}: word_embed_proj_dim",
            config.values["word_embed_proj_dim"],
            "projected embeddings are not modelled",
            "use a model whose embeddings are as wide as its layers",
        )
    return sizes(config, ffn=False) | {
        **biased(config.flag("enable_bias", True)),
        "ffn": config.whole("ffn_dim"),
        "positions": config.whole("max_position_embeddings") + 2,  # the table starts with two padding rows
        "final_norm": not config.flag("_remove_final_layer_norm", False),
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("dropout", 0.1) > 0,
    }


def bloom(config: Config) -> Fields:
    return biased() | {
        "layers": config.first("num_hidden_layers", "n_layer"),
        "hidden": config.first("hidden_size", "n_embed"),
        "heads": config.first("num_attention_heads", "n_head"),
        "vocab": config.whole("vocab_size"),
        "max_seq": config.whole("seq_length", 2048),
        "rope": False,
        "embedding_norm": True,
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("hidden_dropout", 0.0) > 0,
    }


def falcon(config: Config) -> Fields:
    new = config.flag("new_decoder_architecture", False)
    heads = config.whole("num_attention_heads")
    one_head = config.flag("multi_query", True) and not new
    config.seen.update(("num_kv_heads", "parallel_attn"))  # without effect in some of its forms
    parallel = new or config.flag("parallel_attn", True)
    norms = config.whole("num_ln_in_parallel_attn", 2 if new else 1)
    return sizes(config, ffn=False) | {
        **biased(config.flag("bias", False)),
        "kv_heads": 1 if one_head else config.whole("num_kv_heads", heads),
        "ffn": config.whole("ffn_hidden_size", 4 * config.whole("hidden_size")),
        "max_seq": 2048,
        "rope": not config.flag("alibi", False),
        "parallel_block": parallel,
        "shared_norm": parallel and norms == 1,
        "tied": config.flag("tie_word_embeddings", True),
    }


def mpt(config: Config) -> Fields:
    hidden = config.whole("d_model")
    bias = not config.flag("no_bias", True)
    _check_mpt_attention(config)
    return biased(bias) | {
        "layers": config.whole("n_layers"),
        "hidden": hidden,
        "heads": config.whole("n_heads"),
        "ffn": config.whole("expansion_ratio", 4) * hidden,
        "vocab": config.whole("vocab_size"),
        "max_seq": min(config.whole("max_seq_len", 2048), 8192),
        "norm_bias": bias,
        "rope": False,
        "tied": config.flag("tie_word_embeddings", True),
    }


def _check_mpt_attention(config: Config) -> None:
    """Raise unless norms and attention are those of MPT-7B and 30B: many heads, ALiBi, no norms inside."""
    if "rms" in config.word("norm_type", "layernorm"):
        rule = "is not modelled"
        raise BadInput(f"{config.source}: norm_type", config.values["norm_type"], rule, "describe it in TOML")
    if config.values.get("attn_config") is None:
        return
    part = config.part("attn_config")
    learned = config.flag("learned_pos_emb", True) and not part.flag("alibi", True)
    kind = part.word("attn_type", "multihead_attention")
    for name, wrong in (("attn_type", kind != "multihead_attention"), ("qk_ln", part.flag("qk_ln", False))):
        if wrong:
            rule = "is not modelled"
            raise BadInput(f"{part.source}: {name}", part.values[name], rule, "describe the model in TOML")
    if learned:
        rule = "is false, and learned positions are not modelled"
        raise BadInput(f"{part.source}: alibi", False, rule, "describe the model in TOML")


def llama(config: Config) -> Fields:
    bias = config.flag("attention_bias", False)
    fields = llama_like(config)
    return fields | {"qkv_bias": bias, "output_bias": bias, "mlp_bias": config.flag("mlp_bias", False)}


def mistral(config: Config) -> Fields:
    return llama_like(config) | {"window": config.whole("sliding_window", 0)}


def qwen2(config: Config) -> Fields:
    config.seen.add("attention_bias")  # it has that of queries, keys and values in any case
    return llama_like(config) | {"qkv_bias": True, "window": qwen_window(config)}


def qwen3(config: Config) -> Fields:
    return llama(config) | {"qk_norm": "head", "window": qwen_window(config)}


def qwen_window(config: Config) -> int:
    """The window of all layers; layers before `max_window_layers` have none."""
    window, first = config.whole("sliding_window", 0), config.whole("max_window_layers", 0)
    if not config.flag("use_sliding_window", False) or first >= config.whole("num_hidden_layers"):
        return 0
    if window and first and config.values.get("layer_types") is None:
        rule = "leaves some layers without a window, which is not modelled"
        raise BadInput(f"{config.source}: max_window_layers", first, rule, "describe the model in TOML")
    return window


def olmo2(config: Config) -> Fields:
    return llama(config) | {"qk_norm": "full", "norm_placement": "output"}


def phi3(config: Config) -> Fields:
    return llama_like(config) | {"window": config.whole("sliding_window", 0)}


def gemma(config: Config) -> Fields:
    return llama_like(config, tied=True)


def gemma2(config: Config) -> Fields:
    window = config.whole("sliding_window", 4096)
    return llama_like(config, tied=True) | {"post_norms": True, "window": window, "global_every": 2}


def gemma3_text(config: Config) -> Fields:
    """Gemma 3 writes only what differs from its defaults."""
    defaults = {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    }
    values = defaults | {key: value for key, value in config.values.items() if value is not None}
    filled = Config(values=values, source=config.source, seen=config.seen)
    return llama_like(filled, tied=True) | {
        "post_norms": True,
        "qk_norm": "head",
        "window": filled.whole("sliding_window", 1024),
        "global_every": filled.whole("sliding_window_pattern", filled.whole("_sliding_window_pattern", 6)),
    }


def gemma3(config: Config) -> Fields:
    return gemma3_text(text_part(config))


def nemotron(config: Config) -> Fields:
    fields = llama(config)
    return fields | {"gated": False, "norm": "layer"}


def _short_names(config: Config) -> Fields:
    return {
        "layers": config.whole("n_layer"),
        "hidden": config.whole("n_embd"),
        "heads": config.whole("n_head"),
        "ffn": config.whole("n_inner", 0),
        "vocab": config.whole("vocab_size"),
    }
