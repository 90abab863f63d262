"""A sample of `make closure` for every change; and the parts that it is made of."""

import os

import pytest

from tests.closure.arguments import find_invalid, has_facts, has_list
from tests.closure.case import ClosureCase, closure_cases, run_case, stack_names
from tests.closure.run import render_page

# Uneven stages and expert bias (61 layers), 126 layers on 128 chunks, experts, and each stack at least once.
SAMPLE = (
    ("llama3-405b", "h100:2048", "megatron-core"), ("deepseek-v3", "h100:2048", "megatron-core"),
    ("qwen3-235b-a22b", "h100:256", "megatron-core"), ("gpt-oss-120b", "h100:256", "megatron-core"),
    ("gpt3-175b", "h100:256", "megatron-core"), ("llama3-70b", "h100:256", "nemo"),
    ("mixtral-8x7b", "h100:32", "nemo"), ("deepseek-v3", "h100:2048", "nemo"),
    ("llama3-8b", "h100:32", "torchtitan"), ("llama3-405b", "h100:2048", "torchtitan"),
    ("llama3-70b", "h100:256", "torchtitan@0.2.2"), ("deepseek-v2-lite", "h100:32", "torchtitan@0.2.2"),
    ("llama2-13b", "h100:32", "deepspeed"), ("mixtral-8x7b", "h100:32", "deepspeed"),
    ("llama3-8b", "h100:256", "nanotron"), ("llama2-70b", "h100:256", "nanotron@0.4"),
    ("llama3-70b", "h100:256", "accelerate"), ("qwen2.5-7b", "h100:32", "accelerate"),
    ("llama3-70b", "h100:256", "maxtext"), ("mixtral-8x22b", "h100:256", "maxtext"),
    ("llama3-8b", "h100:32", "trainwright"),
)  # fmt: skip
MORE = 10 if os.environ.get("THOROUGH") else 1


@pytest.mark.parametrize(("model", "cluster", "stack"), SAMPLE)
def test_the_best_plans_export_to_their_own_stack_and_read_back(model: str, cluster: str, stack: str) -> None:
    result = run_case(ClosureCase(model=model, cluster=cluster, stack=stack), find_invalid)
    assert result.failures == ()
    assert result.plans > 0
    assert result.exported == result.read_back == result.plans
    assert result.valid == (result.plans if has_list(result.case.capability.target) else 0)


def test_every_stack_is_in_the_sample_and_every_sample_is_a_case() -> None:
    cases = {(each.model, each.cluster, each.stack) for each in closure_cases()}
    assert {*SAMPLE} <= cases
    assert {stack for _, _, stack in SAMPLE} == {*stack_names()}


@pytest.mark.skipif(not has_facts(), reason="the tools' own lists are not at hand")
def test_an_argument_that_a_tool_does_not_have_is_found() -> None:
    line = "pretrain_gpt.py --num-layers 4 --micro-batch-size 1 --bogus 3 --fp8-recipe none --bf16 yes"
    assert len(find_invalid(line, "megatron")) == 3
    assert find_invalid(
        "def f(cfg):\n    cfg.model.bogus = 1\n    cfg.ddp.overlap_grad_reduce = True", "nemo"
    ) == ["cfg.model.bogus is no field"]
    assert find_invalid("parallelism:\n  dp: 1\n  etp: 1\n", "nanotron") == ["parallelism.etp is no field"]
    assert find_invalid("[parallelism]\nfsdp_reshard_after_forward = 'often'\n", "torchtitan-toml") != []
    assert find_invalid('{"zero_optimization": {"stages": 3}}', "deepspeed") == [
        "zero_optimization.stages is no key"
    ]
    assert find_invalid("fsdp_config:\n  fsdp_versions: 2\n", "accelerate") == [
        "fsdp_config.fsdp_versions is no key"
    ]
    assert find_invalid("ici_tensors_parallelism: 2\nquantization: fp9\n", "maxtext") != []


def test_the_page_counts_cases_and_lists_failures() -> None:
    case = ClosureCase(model="llama3-8b", cluster="h100:32", stack="nemo")
    failed = run_case(case, lambda text, target: ["--bogus is no argument"])
    page = render_page([failed])
    assert "| nemo | 1 | 0 | 10 | 10 | 0 | 10 |" in page
    assert "arguments: --bogus is no argument" in page
