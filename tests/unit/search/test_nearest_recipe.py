"""The published recipe of the case nearest to a question."""

from dataclasses import replace

import pytest

from trainwright.cluster.load import load_device
from trainwright.errors import UnknownName
from trainwright.search.nearest_recipe import RecipeMatch, nearest_recipe

USUAL: dict[str, object] = {
    "model": "llama3-70b", "device": "h100", "devices": 64, "seq": 8192, "precision": "fp8",
    "stack": "megatron-core",
}  # fmt: skip


def nearest(**changes: object) -> RecipeMatch:
    found = nearest_recipe(**{**USUAL, **changes})  # type: ignore[arg-type]
    assert found is not None
    return found


def test_the_same_case_differs_in_nothing() -> None:
    found = nearest()
    assert found.recipe.name == "llama3_70b_pretrain_64gpu_h100_fp8cs_config"
    assert found.differences == ()


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-70B", "LLAMA3-70B", "llama3.3-70b"])
def test_a_model_may_have_any_of_its_names(model: str) -> None:
    assert nearest(model=model) == nearest()


def test_a_model_without_recipes_has_none() -> None:
    assert nearest_recipe(**{**USUAL, "model": "yi-34b"}) is None  # type: ignore[arg-type]
    assert nearest_recipe(**{**USUAL, "model": "my-own-model"}) is None  # type: ignore[arg-type]


def test_an_unknown_device_or_stack_is_an_error() -> None:
    with pytest.raises(UnknownName, match='device "h1000": no such name'):
        nearest(device="h1000")
    with pytest.raises(UnknownName, match='stack "megatorn"'):
        nearest(stack="megatorn")


def test_device_counts_and_sequence_lengths_are_weighed_together() -> None:
    # 256 devices at 65,536 tokens are nearer to 512 devices by count; 64 devices at 8,192 are nearer in all.
    found = nearest(devices=512, precision="bf16")
    assert (found.recipe.devices, found.recipe.seq) == (64, 8192)
    assert found.differences == ("64 devices, not 512",)
    far = nearest(devices=512, seq=65536, precision="bf16")
    assert (far.recipe.devices, far.recipe.seq) == (256, 65536)


def test_a_long_sequence_finds_a_default_for_it_before_a_tuned_recipe_for_a_short_one() -> None:
    found = nearest(model="llama3-8b", devices=8, seq=131072, precision="bf16")
    assert (found.recipe.tuned, found.recipe.seq) == (False, 131072)


def test_precision_decides_between_recipes_of_one_size() -> None:
    assert nearest(precision="bf16").recipe.precision == "bf16"
    assert nearest(device="gb300", precision="fp4").recipe.precision == "nvfp4"


def test_the_device_comes_first_then_its_family() -> None:
    assert nearest(device="gb200", devices=4096).recipe.device == "gb200"
    cousin = nearest(device="h200")
    assert cousin.differences == ("h100, not h200-sxm-141gb",)


def test_a_device_of_no_family_with_recipes_gets_one_of_alike_memory() -> None:
    # 80 GiB of an A100: H100 has as much, Blackwell more than twice.
    assert nearest(device="a100").recipe.device == "h100"


def test_a_device_may_be_one_that_the_catalog_does_not_have() -> None:
    mine = replace(load_device("h100"), name="mine")
    assert nearest(device=mine).differences == ("h100, not mine",)


def test_software_of_the_same_kind_comes_before_sizes() -> None:
    assert nearest(device="mi300x", stack="maxtext").recipe.stack == "maxtext"
    assert nearest(device="mi300x", stack="nemo").recipe.stack in ("megatron-bridge", "nemo")


def test_other_software_is_said() -> None:
    assert nearest(stack="deepspeed").differences == ("megatron-bridge, not deepspeed",)


def test_recipes_with_frozen_weights_answer_only_questions_about_them() -> None:
    assert nearest(devices=8, seq=4096).recipe.workload != "lora"
    assert nearest(devices=8, seq=4096, workload="lora").recipe.workload == "lora"


def test_where_there_is_no_recipe_of_the_workload_another_that_trains_all_weights_is_found() -> None:
    found = nearest(model="qwen2.5-14b", devices=4, seq=2048, precision="bf16")
    assert found.differences == ("sft, not pretrain",)
