"""Layers of the pipeline stages of published recipes."""

import pytest

from tests.unit.search.recipe_rows import named, recipe
from trainwright.errors import BadInput
from trainwright.model.load import load_model
from trainwright.search.published_recipe import PublishedRecipe, load_recipes
from trainwright.search.recipe_stages import (
    parse_layout,
    recipe_chunks,
    recipe_stage_layers,
    strategy_stage_layers,
)


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Ett|t|mL", ("Ett", "t", "mL")),
        ("Et*2|(t|)*2mL", ("Ett", "t", "t", "mL")),
        ("Et|((t|)*2t|)*2,L", ("Et", "t", "t", "t", "t", "t", "t", "L")),
        ("Et||tL", ("Et", "", "tL")),
    ],
)
def test_a_layout_is_written_out(text: str, stages: tuple[str, ...]) -> None:
    assert parse_layout(text) == stages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tt|tL", r"is not stages of t and m from E to L; write it like"),
        ("Ett|tx|L", r"is not stages of t and m"),
        ("E(t|*4L", r"is not stages of t and m"),
        ("Et*999999|L", r"is longer than 100,000 letters"),
    ],
)
def test_a_layout_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_layout(text)


@pytest.mark.parametrize("one", [each for each in load_recipes() if each.layout], ids=lambda one: one.name)
def test_every_layout_of_the_table_has_the_layers_of_its_model(one: PublishedRecipe) -> None:
    layers = load_model(one.model).layers
    assert sum(recipe_stage_layers(one, layers)) == layers


def test_a_layout_has_the_last_word_on_the_chunks_of_a_rank() -> None:
    # 16 stages on 4 ranks are 4 chunks, whatever vpp says.
    assert recipe_chunks(named("deepseek_v3_pretrain_256gpu_gb200_fp8mx_partial_cg_dev_config")) == 4
    with pytest.raises(BadInput, match="3 stages do not divide by pp = 2"):
        recipe_chunks(recipe(pp=2, layout="Et|t|tL"))


def test_embedding_and_loss_count_as_layers() -> None:
    # (126 + 2) / (16 · 8) = 1 layer a chunk: the first and the last have none left.
    llama = recipe(pp=16, vpp=8, stage_rule="embedding+loss")
    assert recipe_stage_layers(llama, 126) == (0, *[1] * 126, 0)
    assert strategy_stage_layers(16, 8, 126) == recipe_stage_layers(llama, 126)


@pytest.mark.parametrize(
    ("rule", "layers", "stages"),
    [
        ("", 32, (8, 8, 8, 8)),
        ("", 33, ()),  # a recipe that does not say how they divide
        ("10/12", 94, (10, 36, 36, 12)),
        ("first-full", 61, (16, 16, 16, 13)),
        ("embedding+loss", 62, (15, 16, 16, 15)),
        ("embedding+loss", 61, ()),
    ],
)
def test_layers_divide_by_the_rule_of_the_recipe(rule: str, layers: int, stages: tuple[int, ...]) -> None:
    assert recipe_stage_layers(recipe(pp=4, stage_rule=rule), layers) == stages
