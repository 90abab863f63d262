"""What of a Hugging Face configuration is not understood is refused or named, never dropped."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.model.public_configs import CONFIGS
from trainwright.errors import BadInput, TrainwrightError
from trainwright.model.build import build_graph
from trainwright.model.graph import parameters
from trainwright.model.huggingface import parse_config
from trainwright.model.load import load_model

SHARED = Path(__file__).parents[4] / "shared" / "models"
LLAMA = CONFIGS["llama3-8b"]
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 4, "intermediate_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "patch_size": 2, "image_size": 6, "vision_use_head": False,
}  # fmt: skip
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "moe_intermediate_size": 32, "vocab_size": 100,
    "num_experts_per_tok": 2, "norm_topk_prob": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_memory_heads", 4), ("mamba_d_state", 128), ("linear_num_key_heads", 16), ("index_topk", 2048),
        ("layer_sharing_group_size", 2), ("moe_num_shared_blocks", 1), ("cross_attention_layers", [3, 8]),
        ("hybrid_override_pattern", "M-M*"), ("per_layer_embed_dim", 256), ("ffn_low_rank", 8),
        ("position_embedding_type", "relative_key"), ("is_encoder_decoder", True),
    ],
)  # fmt: skip
def test_a_key_that_may_change_the_model_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"config.json: {key}"):
        parse_config(LLAMA | {key: value}, "x")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mistral-7b", {"attention_bias": True}),
        ("mixtral-8x7b", {"mlp_bias": True}),
        ("opt-13b", {"do_layer_norm_before": False}),
        ("opt-13b", {"layer_norm_elementwise_affine": False}),
        ("mpt-7b", {"attn_config": {"attn_type": "multiquery_attention"}}),
        ("mpt-7b", {"attn_config": {"alibi": False}}),
        ("qwen2.5-7b", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 3}),
    ],
)
def test_values_that_the_reader_does_not_model_are_refused(name: str, change: dict[str, object]) -> None:
    key = "max_window_layers" if len(change) > 1 else next(iter(change))
    with pytest.raises(BadInput, match=key):
        parse_config(CONFIGS[name] | change, "x")


def test_keys_without_effect_and_parts_that_are_off_are_accepted() -> None:
    harmless = {
        "rope_theta": 1e4, "bos_token_id": 1, "use_cache": True, "initializer_range": 0.02, "mlp_bias": False,
        "torch_dtype": "bfloat16", "attention_dropout": 0.0, "num_memory_heads": 0, "vision_config": None,
        "architectures": ["LlamaForCausalLM"], "partial_rotary_factor": 0.5,
    }  # fmt: skip
    assert parse_config(LLAMA | harmless, "x") == parse_config(LLAMA, "x")


def test_what_is_not_planned_is_named() -> None:
    found = parse_config(LLAMA | {"quantization_config": {"bits": 8}, "flavour": "mild"}, "x")
    assert found.left_out == "Not considered: quantization_config, flavour."


def test_a_vision_tower_is_named_and_counted() -> None:
    """4 wide, 9 patches of 2 x 2 x 3: patches 52, positions 36, two layers of 172, a norm of 8.

    A layer: attention 4 x (16 + 4), norms 16, MLP 32 + 8 + 32 + 4. The projector: 4 x hidden + 4.
    """
    text = {key: value for key, value in CONFIGS["gemma-3-1b"].items() if key != "model_type"}
    config = {
        "model_type": "gemma3",
        "text_config": text,
        "vision_config": SIGLIP,
        "mm_tokens_per_image": 256,
    }
    found = parse_config(config, "mine")
    tower = 52 + 36 + 2 * 172 + 8
    count = tower + 4 * found.hidden + 4
    assert found.name == "mine (text only)"
    assert found.left_out == f"Text only: vision_config is left out, {count:,} parameters with its projector."


def test_any_further_model_in_a_configuration_is_named() -> None:
    found = parse_config(LLAMA | {"audio_config": {"num_hidden_layers": 2, "hidden_size": 8}}, "x")
    assert found.name == "x (text only)"
    assert "audio_config is left out, whose parameters are not counted" in found.left_out


def test_layers_that_predict_further_tokens_are_named_and_counted() -> None:
    config = CONFIGS["deepseek-v3"] | {"num_nextn_predict_layers": 1}
    found = parse_config(config, "x")
    assert (
        "1 layer that predicts further tokens (num_nextn_predict_layers) left out, 11.6 B" in found.left_out
    )


def test_heads_of_bert_are_those_of_its_class() -> None:
    config = CONFIGS["bert-large"]
    pretrained = parse_config(config | {"architectures": ["BertForPreTraining"]}, "x")
    masked = parse_config(config | {"architectures": ["BertForMaskedLM"]}, "x")
    assert (pretrained.pooler, masked.pooler, masked.mlm_head) == (True, False, True)
    less = parameters(build_graph(pretrained)) - parameters(build_graph(masked))
    assert less == 1024 * 1024 + 1024 + 2 * 1024 + 2  # the pooler, and two classes


@pytest.mark.parametrize(
    "name", ["LlamaForSequenceClassification", "LlamaForTokenClassification", "XRewardModel"]
)
def test_another_head_than_that_of_pretraining_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f'architectures "{name}"'):
        parse_config(LLAMA | {"architectures": [name]}, "x")
    assert "LlamaModel does not have" in parse_config(LLAMA | {"architectures": ["LlamaModel"]}, "x").left_out


def test_experts_are_counted_under_either_name() -> None:
    older, newer = QWEN_MOE | {"num_experts": 8}, QWEN_MOE | {"num_local_experts": 8, "mlp_only_layers": []}
    assert parse_config(older, "x") == parse_config(newer, "x")
    assert parse_config(newer | {"mlp_only_layers": [0]}, "x").first_dense == 1
    with pytest.raises(BadInput, match="mlp_only_layers"):
        parse_config(newer | {"mlp_only_layers": [2]}, "x")


@pytest.mark.parametrize(
    ("types", "window", "every"),
    [("fff", 0, 0), ("sss", 8, 0), ("ssf", 8, 3), ("sfs", 8, 2)],
)
def test_layer_types_decide_which_layers_have_a_window(types: str, window: int, every: int) -> None:
    names = {"f": "full_attention", "s": "sliding_attention"}
    change = {"num_hidden_layers": 3, "sliding_window": 8, "layer_types": [names[each] for each in types]}
    found = parse_config(LLAMA | change, "x")
    assert (found.window, found.global_every) == (window, every)


@pytest.mark.parametrize("types", [["full_attention"], ["linear_attention"] * 3, "full"])
def test_layer_types_that_are_not_modelled_are_refused(types: object) -> None:
    with pytest.raises(BadInput, match="layer_types"):
        parse_config(LLAMA | {"num_hidden_layers": 3, "layer_types": types}, "x")
    uneven = ["full_attention", "sliding_attention", "sliding_attention"]
    with pytest.raises(BadInput, match="layer_types"):
        parse_config(LLAMA | {"num_hidden_layers": 3, "sliding_window": 8, "layer_types": uneven}, "x")


@pytest.mark.parametrize(
    "family",
    [
        "glm_moe_dsa", "mamba2", "qwen3_next", "llava", "olmo3", "phi", "git", "gpt_neo", "bart", "albert",
        "deepseek_v32",
    ],
)  # fmt: skip
def test_another_family_is_never_suggested(family: str) -> None:
    with pytest.raises(BadInput, match="is no family that is read; use one of") as refusal:
        parse_config(LLAMA | {"model_type": family}, "x")
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "name"), [("Llama", "llama"), ("gpt-neox", "gpt_neox"), ("mixtarl", "mixtral")]
)
def test_a_family_that_is_misspelt_is_suggested(text: str, name: str) -> None:
    with pytest.raises(BadInput, match=f'did you mean "{name}"'):
        parse_config(LLAMA | {"model_type": text}, "x")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public configurations are not at hand")
def test_every_public_configuration_is_counted_named_or_refused() -> None:
    rows = [*csv.DictReader((SHARED / "counts.csv").read_text(encoding="utf-8").splitlines())]
    read = 0
    for row in rows:
        try:
            found = load_model(str(SHARED / row["file"]))
        except TrainwrightError:
            continue
        read += 1
        count, true = parameters(build_graph(found)), int(row["parameters"] or 0)
        if int(row["of_which_towers"] or 0):
            assert found.name.endswith("(text only)"), row["file"]
            true -= int(row["of_which_towers"])
        assert not true or count == pytest.approx(true, rel=1e-3), row["file"]
    assert read >= 41
    assert json.loads((SHARED / rows[0]["file"]).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vit-base", {"id2label": 3}),
        ("qwen3-30b-a3b", {"mlp_only_layers": 3}),
        ("swinv2-base", {"id2label": True}),
    ],
)
def test_values_of_a_wrong_form_are_refused_by_name(name: str, change: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=next(iter(change))):
        parse_config(CONFIGS[name] | change, "x")


def test_layers_beyond_all_reason_are_not_counted() -> None:
    change = {"num_nextn_predict_layers": 1, "num_hidden_layers": 10**9}
    assert "left out." in parse_config(CONFIGS["deepseek-v3"] | change, "x").left_out
