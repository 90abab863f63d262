"""Models by name and by file, and what a user is told when one cannot be read."""

import json
from pathlib import Path

import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.model.architecture import Architecture
from trainwright.model.load import load_entry, load_model, model_names


def test_the_catalog_knows_the_models_people_ask_for() -> None:
    assert len(model_names()) >= 45
    assert {"gpt3-175b", "llama3-70b", "mixtral-8x7b", "deepseek-v3", "t5-11b", "vit-huge"} <= {
        *model_names()
    }


@pytest.mark.parametrize("name", model_names())
def test_every_name_and_alias_finds_its_own_entry(name: str) -> None:
    for text in (name, name.upper(), *load_entry(name).aliases):
        assert load_model(text).name == name


@pytest.mark.parametrize("text", ["meta-llama/Llama-3.1-8B", "llama-3-8b", "Llama3_8B", "llama3.1-8b"])
def test_a_name_may_be_written_as_people_write_it(text: str) -> None:
    assert load_model(text).name == "llama3-8b"


def test_an_unknown_model_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match='model "lama3-8b": no such name; did you mean "llama3-8b"'):
        load_model("lama3-8b")


def test_a_toml_file_states_architecture_fields(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("layers = 2\nhidden = 8\nheads = 2\nvocab = 16\n")
    assert load_model(str(path)) == Architecture(name="mine", layers=2, hidden=8, heads=2, vocab=16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers = 2\nhiden = 8\n", r'mine.toml: key "hiden": no such name; did you mean "hidden"'),
        ("layers = 2\nhidden = 8\n", r'mine.toml: key "heads": is missing; add heads'),
        ("layers = \n", r'mine.toml": is not TOML'),
        ('layers = "2"\nhidden = 8\nheads = 2\n', r'layers "2": must be a whole number of at least 1'),
        ("layers = 2\nhidden = 9\nheads = 2\n", r"hidden 9: does not divide by heads = 2; state head_dim"),
        ("layers = 2\nhidden = 8\nheads = 2\n", r"vocab 0: a text model needs one; state vocab"),
        ("layers=2\nhidden=8\nheads=2\nvocab=9\ngated='yes'", r'gated "yes": must be true or false'),
        ("layers=2\nhidden=8\nheads=2\nvocab=9\nnorm='l2'", r'norm "l2": no such choice; use one of rms'),
        ("layers=2\nhidden=8\nheads=4\nkv_heads=3\nvocab=9", r"heads 4: does not divide by kv_heads = 3"),
        ("layers=2\nhidden=8\nheads=4\nexperts=4\nvocab=9", r"top_k 0: must be 1 to experts = 4"),
        ("layers=2\nhidden=8\nheads=4\ntop_k=4\nvocab=9", r"experts 0: top_k or shared experts without"),
        ("layers=2\nhidden=8\nheads=4\nkv_lora_rank=4\nvocab=9", r"kv_lora_rank 4: latent attention needs"),
        ("layers=2\nhidden=8\nheads=4\nkind='vision'", r"image_size 0: a vision model needs one"),
    ],
)
def test_a_bad_toml_file_is_named_with_the_rule(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        load_model(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r'config.json": is not JSON, line 1'),
        ("[]", r'config.json": is not a JSON object'),
        ("{}", r'config.json: field "model_type": is missing'),
        ('{"model_type": "lama"}', r'model_type "lama": is no family that is read; did you mean "llama"'),
        ('{"model_type": "llama"}', r'config.json: field "num_hidden_layers": is missing'),
    ],
)
def test_a_bad_configuration_is_named_with_the_rule(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=message):
        load_model(str(path))


def test_a_missing_file_is_said_to_be_missing() -> None:
    with pytest.raises(BadInput, match=r'"nowhere/config.json": does not exist; check the path'):
        load_model("nowhere/config.json")


def test_a_directory_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(str(tmp_path)).layers == 2
    assert load_model(str(tmp_path)).name == tmp_path.name


SMALL = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "vocab_size": 100, "intermediate_size": 128,
}  # fmt: skip


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_byte_order_mark_is_no_part_of_a_config(tmp_path: Path) -> None:
    assert load_model(config(tmp_path, "\ufeff" + json.dumps(SMALL))).layers == 2


@pytest.mark.parametrize("text", ["[" * 200_000, '{"hidden_size": ' + "9" * 5000 + "}"])
def test_a_config_too_deep_or_too_long_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match="has numbers too long or parts too deep"):
        load_model(config(tmp_path, text))


@pytest.mark.parametrize("text", ["layers = " + "[" * 100_000, "layers = " + "9" * 5000])
def test_a_toml_file_too_deep_or_too_long_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="has numbers too long or parts too deep"):
        load_model(str(path))


def test_a_model_of_too_many_layers_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="layers 10001: is more than 10,000; correct it"):
        load_model(config(tmp_path, json.dumps(SMALL | {"num_hidden_layers": 10_001})))
    path = tmp_path / "mine.toml"
    path.write_text("layers = 2\nhidden = 1000000000\nheads = 4\nvocab = 100\n", encoding="utf-8")
    with pytest.raises(BadInput, match="hidden 1000000000: is more than 100,000,000"):
        load_model(str(path))


def test_a_name_longer_than_any_file_is_told() -> None:
    with pytest.raises(BadInput, match="File name too long; check the name"):
        load_model("a" * 5000)
