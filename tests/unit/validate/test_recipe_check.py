"""Published recipes: legality, OOM risk, and that no first plan is slower with the same state."""

import pytest

from tests.unit.search.recipe_rows import named, recipe
from trainwright.search.published_recipe import load_recipes
from trainwright.search.recipe_job import build_recipe_job
from trainwright.validate.recipe_check import check_recipes, failed_rows, render_checked, summary_lines
from trainwright.validate.recipe_winner import check_winner

SHARE = 0.88  # 47 of 53


def test_frozen_weights_are_not_counted_and_unknown_devices_are_named() -> None:
    check = check_recipes([recipe(), recipe(workload="lora"), recipe(name="rubin", device="r100")])
    assert (len(check.checked), check.frozen) == (1, 1)
    assert [name for name, _ in check.refused] == ["rubin"]
    assert "Not checked, as weights are frozen (LoRA): 1" in summary_lines(check)[1]


def test_a_recipe_that_cannot_hold_its_state_fails_with_the_reason() -> None:
    # 8.0e9 parameters of 2 + 4 + 12 bytes are 144 GB on one device of 80
    check = check_recipes([recipe(devices=1, global_batch=1)])
    assert check.passed == 0
    assert "state alone" in str(failed_rows(check)[0][-1])
    assert len(render_checked(check).splitlines()) == 2


def test_recipes_are_legal_and_the_passing_share_does_not_fall() -> None:
    """Of each sixth recipe; `make recipes` has all. The share may only rise: the issue asks for 97 %."""
    check = check_recipes(load_recipes()[::6])
    assert not [each.found.recipe.name for each in check.checked if each.predicted.broken]
    assert check.passed / len(check.checked) >= SHARE


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("llama3_8b_pretrain_8gpu_h100_bf16_config", ""),
        ("qwen3_8b_sft_8gpu_h100_bf16_32k_config", ""),
        ("pre_train_qwen3_30b_a3b_8_gb200_bf16", None),
        ("gpt_oss_120b_pretrain_64gpu_b300_fp8mx_config", "gradients in bf16"),
        ("kimi_k2_pretrain_256gpu_b200_bf16_config", None),
        ("pre_train_llama31_405b_128_gb200_fp8", None),
        ("ironwood/deepseek3-671b/4k-bf16-tpu7x-4x8x8/xpk", "optimizer adamw-mu-bf16, gradients in bf16"),
    ],
)
def test_the_first_plan_is_not_slower_than_the_recipe(name: str, taken: str | None) -> None:
    found = check_winner(build_recipe_job(named(name)))
    assert found.winner
    assert not found.is_slower(found.same)
    assert not found.is_slower(found.own)
    assert taken in (None, found.taken)
