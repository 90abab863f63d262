"""Whether a search takes the optimizer state of a published recipe of its case, and only then."""

from dataclasses import replace

import pytest

from tests.unit.search.recipe_rows import named
from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.load import load_constants
from trainwright.model.load import load_entry
from trainwright.search.find import Question
from trainwright.search.recipe_defaults import fill_defaults
from trainwright.search.recipe_job import build_recipe_job
from trainwright.search.recipe_search import find_recipe_winner, find_with_recipe, recipe_rivals
from trainwright.search.recipe_state import state_options
from trainwright.validate.recipe_winner import recipe_question

# Its gradients are in bf16; with fp32 ones it does not fit as it is.
RECIPE = "gpt_oss_120b_pretrain_64gpu_b300_fp8mx_config"


def asked(name: str = RECIPE) -> Question:
    return recipe_question(build_recipe_job(named(name)))


def with_state(question: Question, optimizer: str, grad_dtype: str) -> Question:
    stack = with_optimizer(question.job.stack, optimizer, grad_dtype)
    return replace(question, job=replace(question.job, stack=stack))


def test_the_state_of_a_recipe_that_is_faster_with_it_is_taken_and_named() -> None:
    search, winner = find_recipe_winner(asked())
    assert search.taken is not None
    assert search.taken.recipe == RECIPE
    assert (search.taken.optimizer, search.taken.grad_dtype) == ("", "bf16")
    assert search.taken.gain
    assert search.taken.gain > 0.0
    assert search.question.job.stack.grad_dtype == "bf16"
    assert float(winner.score[0]) <= min(each.score for each in recipe_rivals(asked())) * (1.0 + 1e-6)


@pytest.mark.parametrize(("optimizer", "grad_dtype"), [("", "fp32"), ("adamw", "")])
def test_a_stated_state_is_kept(optimizer: str, grad_dtype: str) -> None:
    question = with_state(asked(), optimizer, grad_dtype)
    search = find_with_recipe(question)
    assert search.taken is None
    assert search.question.job.stack == question.job.stack
    assert not list(recipe_rivals(question))


def test_another_case_keeps_the_state_of_the_stack() -> None:
    question = asked()
    longer = replace(question, job=replace(question.job, seq=2 * question.job.seq))
    assert list(recipe_rivals(question))
    assert not list(recipe_rivals(longer))
    assert find_with_recipe(longer).taken is None


def test_a_recipe_that_is_not_faster_leaves_the_state_alone() -> None:
    search = find_with_recipe(asked("llama3_8b_pretrain_8gpu_h100_bf16_config"))
    assert search.recipe is not None
    assert search.taken is None
    assert not search.question.job.stack.grad_dtype


def test_options_of_a_state_are_those_that_the_stack_has_and_does_not_run_anyway() -> None:
    def options(name: str, stack: str) -> tuple[str, str]:
        recipe = named(name)
        filled = fill_defaults(recipe, load_entry(recipe.model).architecture)[0]
        return state_options(filled, load_constants().stack(stack))

    muon = "kimi_k2_pretrain_256gpu_b200_bf16_config"
    assert options(muon, "megatron-core") == ("", "bf16")  # another algorithm is not taken
    assert options(muon, "torchtitan") == ("", "")
    assert options("qwen3_1p7b_pretrain_1gpu_h100_bf16_config", "megatron-core") == ("", "")  # its defaults
    assert options("ironwood/llama3.1-405b/8k-fp8-tpu7x-4x8x8", "maxtext") == ("adamw-mu-bf16", "")
