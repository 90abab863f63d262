"""Hugging Face configurations of encoders, encoder-decoders and vision transformers."""

from collections.abc import Mapping

from trainwright.errors import BadInput
from trainwright.model.config_fields import Config, Fields, biased, sizes
from trainwright.model.config_heads import architecture_name


def bert(config: Config) -> Fields:
    """BERT as it is pretrained: with a masked-token head, and with pooler and next-sentence head.

    Of `BertForMaskedLM` without the latter.
    """
    masked_only = architecture_name(config).endswith("ForMaskedLM")
    return sizes(config) | {
        **biased(),
        "kind": "encoder",
        "positions": config.whole("max_position_embeddings"),
        "token_types": config.whole("type_vocab_size"),
        "embedding_norm": True,
        "norm_placement": "post",
        "final_norm": False,
        "pooler": not masked_only,
        "mlm_head": True,
        "head_bias": True,
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("hidden_dropout_prob", 0.1) > 0,
    }


def t5(config: Config) -> Fields:
    layers = config.whole("num_layers")
    config.seen.add("num_hidden_layers")  # another name of num_layers
    activation = config.word("feed_forward_proj", "relu")
    return {
        "kind": "encoder_decoder",
        "layers": config.whole("num_decoder_layers", layers),
        "encoder_layers": layers,
        "hidden": config.whole("d_model"),
        "heads": config.whole("num_heads"),
        "head_dim": config.whole("d_kv"),
        "ffn": config.whole("d_ff"),
        "gated": activation.startswith("gated"),
        "vocab": config.whole("vocab_size"),
        "max_seq": config.whole("n_positions", 512),
        "position_buckets": config.whole("relative_attention_num_buckets", 32),
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("dropout_rate", 0.1) > 0,
    }


def mbart(config: Config) -> Fields:
    heads, ffn = _same(config, "attention_heads"), _same(config, "ffn_dim")
    positions = config.whole("max_position_embeddings")
    # its own names for what is read, and what every mBART has
    config.seen.update(("num_hidden_layers", "add_final_layer_norm", "add_bias_logits"))
    return biased() | {
        "kind": "encoder_decoder",
        "layers": config.whole("decoder_layers"),
        "encoder_layers": config.whole("encoder_layers"),
        "hidden": config.whole("d_model"),
        "heads": heads,
        "ffn": ffn,
        "vocab": config.whole("vocab_size"),
        "positions": positions + 2,  # the table starts with two padding rows
        "max_seq": positions,
        "embedding_norm": True,
        "tied": config.flag("tie_word_embeddings", True),
        "dropout": config.rate("dropout", 0.1) > 0,
    }


def vit(config: Config) -> Fields:
    """A classifier; without labels in the configuration it has ImageNet's thousand classes."""
    image, patch = config.whole("image_size"), config.whole("patch_size")
    tokens = (image // patch) ** 2 + 1
    return {
        **biased(),
        "kind": "vision",
        "layers": config.whole("num_hidden_layers"),
        "hidden": config.whole("hidden_size"),
        "heads": config.whole("num_attention_heads"),
        "ffn": config.whole("intermediate_size"),
        "qkv_bias": config.flag("qkv_bias", True),
        "image_size": image,
        "patch_size": patch,
        "channels": config.whole("num_channels", 3),
        "classes": _classes(config),
        "positions": tokens,
        "max_seq": tokens,
        "head_bias": True,
        "dropout": config.rate("hidden_dropout_prob", 0.0) > 0,
    }


def swinv2(config: Config) -> Fields:
    """A classifier over windows; every stage halves the image and doubles the width."""
    ratio = config.rate("mlp_ratio", 4.0)
    depths, heads = config.numbers("depths"), config.numbers("num_heads")
    config.seen.update(("num_layers", "hidden_size"))  # both follow from depths
    for stage, each in enumerate(heads):
        if each != heads[0] * 2**stage:
            rule = "does not double from stage to stage"
            raise BadInput(f"{config.source}: num_heads", str(heads), rule, "use a model whose heads do")
    hidden = config.whole("embed_dim")
    return {
        **biased(),
        "kind": "swin",
        "layers": sum(depths),
        "depths": depths,
        "hidden": hidden,
        "heads": heads[0],
        "ffn": int(ratio * hidden),
        "qkv_bias": config.flag("qkv_bias", True),
        "window": config.whole("window_size"),
        "image_size": config.whole("image_size"),
        "patch_size": config.whole("patch_size"),
        "channels": config.whole("num_channels", 3),
        "classes": _classes(config),
        "head_bias": True,
        "dropout": config.rate("hidden_dropout_prob", 0.0) > 0,
    }


def _classes(config: Config) -> int:
    """Classes that are labelled, or their number; ImageNet's thousand if the configuration has neither."""
    labels = config.values.get("id2label")
    if labels is not None and not isinstance(labels, Mapping):
        raise BadInput(
            f"{config.source}: id2label", str(labels)[:80], "must be a table of labels", "correct it"
        )
    return len(labels) if labels else config.whole("num_labels", 1000)


def _same(config: Config, field: str) -> int:
    encoder, decoder = config.whole(f"encoder_{field}"), config.whole(f"decoder_{field}")
    if encoder != decoder:
        raise BadInput(
            f"{config.source}: decoder_{field}",
            decoder,
            f"differs from the encoder's {encoder}",
            "use a model whose two stacks have equal layers",
        )
    return encoder
