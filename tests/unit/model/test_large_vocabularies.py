"""Encoder-decoders whose embedding is a large part of them, and GPT-3 at long sequences."""

import pytest

from trainwright.model.build import build_graph
from trainwright.model.graph import parameters
from trainwright.model.load import load_model

T5 = {"t5-3.9b": 3.9, "t5-11.6b": 11.6, "t5-21.3b": 21.3, "t5-46.4b": 46.4}
MBART = {"mbart-4.7b": 4.7, "mbart-9.6b": 9.6, "mbart-20b": 20.0, "mbart-43b": 43.0}
GPT3 = {"gpt3-1.3b-16k": 1.3, "gpt3-2.6b-16k": 2.6, "gpt3-6.7b-16k": 6.7, "gpt3-15b-16k": 15.0}


@pytest.mark.parametrize(("name", "billions"), T5.items())
def test_the_t5_of_the_paper_has_its_layers_in_each_stack(name: str, billions: float) -> None:
    model = load_model(name)
    # 12 h² per encoder layer, 16 h² with cross attention, one table of words
    by_hand = model.layers * (12 + 16) * model.hidden**2 + model.vocab * model.hidden
    assert model.layers == model.encoder_layers
    assert parameters(build_graph(model)) == pytest.approx(by_hand, rel=1e-3)
    assert by_hand / 1e9 == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(("name", "billions"), MBART.items())
def test_mbart_has_its_count_with_half_a_million_words_and_more(name: str, billions: float) -> None:
    model = load_model(name)
    assert model.vocab >= 500_000
    assert parameters(build_graph(model)) / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(("name", "billions"), GPT3.items())
def test_gpt3_at_16k_has_its_count(name: str, billions: float) -> None:
    model = load_model(name)
    assert model.max_seq == 16384
    assert parameters(build_graph(model)) / 1e9 == pytest.approx(billions, rel=0.04)
