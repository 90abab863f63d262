"""A Hugging Face configuration and the catalog describe the same model."""

from dataclasses import replace

import pytest

from tests.unit.model.public_configs import CONFIGS
from trainwright.errors import BadInput
from trainwright.model.huggingface import FAMILIES, parse_config
from trainwright.model.load import load_model


@pytest.mark.parametrize("name", CONFIGS)
def test_an_imported_configuration_equals_the_catalog(name: str) -> None:
    known = load_model(name)
    imported = parse_config(CONFIGS[name], name)
    assert replace(imported, max_seq=known.max_seq) == known


def test_every_family_is_compared_but_those_that_only_wrap_another() -> None:
    assert {*FAMILIES} - {config["model_type"] for config in CONFIGS.values()} == {"gemma3", "llama4"}


@pytest.mark.parametrize(("family", "name"), [("gemma3", "gemma-3-1b"), ("llama4", "llama4-maverick")])
def test_the_text_part_of_a_multimodal_configuration_is_read(family: str, name: str) -> None:
    wrapped = parse_config({"model_type": family, "text_config": CONFIGS[name]}, name)
    assert wrapped.name == f"{name} (text only)"
    assert "vision tower" in wrapped.left_out
    assert replace(wrapped, name=name, left_out="") == parse_config(CONFIGS[name], name)


def test_a_long_context_is_planned_at_the_length_of_pretraining() -> None:
    assert parse_config(CONFIGS["llama3-8b"], "x").max_seq == 8192
    assert parse_config(CONFIGS["llama3-8b"] | {"max_position_embeddings": 2048}, "x").max_seq == 2048


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("llama3-8b", {"hidden_size": None}, 'config.json: field "hidden_size": is missing; add hidden_size'),
        ("llama3-8b", {"hidden_size": "4096"}, 'hidden_size "4096": must be a whole number'),
        ("llama3-8b", {"attention_bias": 1}, "attention_bias 1: must be true or false"),
        ("t5-11b", {"feed_forward_proj": 3}, "feed_forward_proj 3: must be text"),
        ("t5-11b", {"dropout_rate": "none"}, 'dropout_rate "none": must be a number'),
        ("opt-13b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim 512: projected embeddings are not"),
        ("mbart-large-50", {"decoder_ffn_dim": 8}, "decoder_ffn_dim 8: differs from the encoder's 4096"),
        ("llama4-maverick", {"model_type": "llama4"}, 'field "text_config": is missing'),
        ("llama3-8b", {"num_key_value_heads": 5}, "heads 32: does not divide by kv_heads = 5"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(name: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_config(CONFIGS[name] | change, name)
