"""The catalog's table of published recipes."""

import re
from collections import Counter

import pytest

from tests.unit.search.recipe_rows import named, recipe
from trainwright.errors import BadInput
from trainwright.model.load import model_names
from trainwright.search.published_recipe import (
    COLUMNS,
    load_recipes,
    parse_recipe,
    render_row,
)


def test_every_recipe_is_of_a_model_of_the_catalog() -> None:
    assert len(load_recipes()) >= 430
    assert {each.model for each in load_recipes()} <= {*model_names()}


def test_every_recipe_is_cited_by_repository_commit_file_and_date() -> None:
    cited = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{7}:\S+\.\w+(:\d+)?, 20\d\d-\d\d-\d\d")
    assert [each.citation for each in load_recipes() if not cited.fullmatch(each.citation)] == []


def test_no_two_recipes_have_the_same_place() -> None:
    places = Counter((each.repository, each.path) for each in load_recipes())
    assert [place for place, count in places.items() if count > 1] == []


def test_a_recipe_of_the_table_has_the_settings_of_its_source() -> None:
    found = named("deepseek_v3_pretrain_256gpu_gb200_bf16_config")
    assert (found.model, found.device, found.devices) == ("deepseek-v3", "gb200", 256)
    assert (found.tp, found.pp, found.vpp, found.ep, found.etp, found.sp) == (1, 4, 4, 64, 1, False)
    assert (found.grad_dtype, found.exp_avg_dtype, found.precision_aware) == ("bf16", "bf16", True)
    assert found.layout.startswith("Etttt|tttt|")
    assert found.mtp_layers == 1
    assert found.recompute_modules == ("mla_up_proj",)
    assert found.sharding == "distributed-optimizer"
    assert found.other["cross_entropy"] == "te"


def test_a_recipe_that_is_silent_has_no_value() -> None:
    found = named("pre_train_llama3_70b_64_h100_bf16")
    assert (found.sp, found.precision_aware, found.grad_overlap) == (None, None, None)
    assert named("llama3_70b.toml").devices is None


def test_a_row_is_read_as_it_was_written() -> None:
    one = recipe(sp=False, offload_modules=("core_attn", "attn_proj"), micro_batch=0.125)
    cells = render_row({name: getattr(one, name) for name in COLUMNS})
    assert (cells["offload_modules"], cells["micro_batch"]) == ("core_attn attn_proj", "0.125")
    assert parse_recipe(cells) == one


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fsdp": "1"}, r'recipes "fsdp": columns and fields differ'),
        ({"workload": "dpo"}, r'recipe "mine": workload "dpo": is not one of pretrain, sft, lora'),
        ({"precision": "fp6"}, r'recipe "mine": precision "fp6": is not one of'),
        ({"sharding": "zero9"}, r'recipe "mine": sharding "zero9": is not one of'),
    ],
)
def test_a_row_that_cannot_be_read_is_named(change: dict[str, str], message: str) -> None:
    one = recipe()
    cells = render_row({name: getattr(one, name) for name in COLUMNS})
    with pytest.raises(BadInput, match=message):
        parse_recipe(cells | change)
