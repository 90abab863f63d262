"""A sample of `make closure` for every change; and the parts that it is made of."""

import os
from itertools import product

import pytest

from tests.closure.arguments import find_invalid, has_facts, has_list
from tests.closure.case import SUFFIXES, ClosureCase, closure_cases, run_case, stack_names
from tests.closure.run import render_page
from trainwright.api.plan_problem import build_problem
from trainwright.api.ranked_plans import rank_plans
from trainwright.export.canonical import canonical
from trainwright.export.gaps import capability_gaps
from trainwright.export.handover import Handover
from trainwright.export.reading.configured import StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy
from trainwright.stack.load import capability_of

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


# Questions of published recipes whose optimizer state the search takes.
TAKEN = (
    ("gpt-oss-120b", "b300:64", "megatron-core", "fp8", 4096, 1280),
    ("kimi-k2", "b200:256", "megatron-core", "bf16", 4096, 4096),
)


@pytest.mark.parametrize(("model", "cluster", "stack", "precision", "seq", "batch"), TAKEN)
def test_plans_with_the_optimizer_state_of_a_recipe_read_back_with_it(
    model: str, cluster: str, stack: str, precision: str, seq: int, batch: int
) -> None:
    stated = {"precision": precision, "seq": seq, "batch": batch}
    case = ClosureCase(model=model, cluster=cluster, stack=stack, stated=stated)
    result = run_case(case, find_invalid)
    assert result.failures == ()
    assert result.plans == result.exported == result.read_back > 0
    assert rank_plans(build_problem(case.request)).taken is not None


# Sharding and recomputation of one host's plan; each stack runs some of them.
STATED = ("zero0", "zero1", "zero2", "zero3", "zero1 full", "zero3 full", "zero3 recompute=dots")


@pytest.mark.parametrize("stack", stack_names())
def test_optimizers_and_gradient_dtypes_read_back_from_their_own_stack(stack: str) -> None:
    """Every optimizer and dtype that a stack has, with each sharding and precision that it goes with."""
    able, arch, followed = capability_of(stack), load_model("llama3-8b"), set()
    for text, precision, optimizer, grad_dtype in product(
        STATED, able.precisions, ("", *able.optimizers), ("", *able.grad_dtypes)
    ):
        handover = Handover(
            strategy=parse_strategy(f"dp8 mb1 {text} {precision}"), global_batch=8, seq=2048,
            model="llama3-8b", architecture=arch, optimizer=optimizer, grad_dtype=grad_dtype,
            device_family="hopper",
        )  # fmt: skip
        if any(capability_gaps(handover, able)):
            continue
        written = export_text(handover, able.target)
        assert not find_invalid(written, able.target)
        source = f"export.{SUFFIXES.get(able.target, 'yaml')}"
        found = read_text(written, source, stated=StatedSettings(devices=8, architecture=arch))
        assert canonical(found.strategy) == canonical(handover.strategy)
        assert (found.optimizer or able.optimizers[0]) == (optimizer or able.optimizers[0])
        assert (found.grad_dtype or "fp32") == (grad_dtype or "fp32")
        assert not [note for note in found.notes if "considered" in note or "predicted" in note]
        assert "than predicted" not in written
        followed |= {optimizer, grad_dtype}
    assert followed == {"", *able.optimizers, *able.grad_dtypes}


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


@pytest.mark.skipif(not has_facts(), reason="the tools' own lists are not at hand")
def test_the_page_counts_cases_and_lists_failures() -> None:
    case = ClosureCase(model="llama3-8b", cluster="h100:32", stack="nemo")
    failed = run_case(case, lambda text, target: ["--bogus is no argument"])
    page = render_page([failed])
    assert "| nemo | 1 | 0 | 10 | 10 | 0 | 10 |" in page
    assert "arguments: --bogus is no argument" in page
