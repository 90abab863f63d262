"""Which optimizers go with which sharding, offloading and precision, by stack."""

import pytest

from trainwright.plan.legality import PlanFacts, violations
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.stack.load import capability_of


def broken(strategy: str, optimizer: str = "", grad_dtype: str = "", stack: str = "megatron-core") -> dict:
    facts = PlanFacts(optimizer=optimizer, grad_dtype=grad_dtype)
    plain = parse_strategy(strategy)
    found = violations(capability_of(stack), stack_strategies([plain]), facts)
    return {each.knob: each.reason(plain) for each in found}


@pytest.mark.parametrize("zero", ["zero2", "zero3"])
def test_megatron_fsdp_has_adam_and_sgd_only(zero: str) -> None:
    assert not broken(f"dp8 mb1 {zero}", "adamw")
    assert not broken(f"dp8 mb1 {zero}", "sgd")
    # Megatron's validators pass it, and NVIDIA ships it for DeepSeek-V3.
    assert not broken(f"dp8 mb1 {zero}", "precision-aware-bf16")
    assert "sgd with zero 2 and 3, not muon" in broken(f"dp8 mb1 {zero}", "muon")["zero"]


def test_the_precision_aware_optimizer_needs_the_distributed_one() -> None:
    assert "with zero 1 and above" in broken("dp8 mb1 zero0", "precision-aware-bf16")["zero"]
    assert not broken("dp8 mb1 zero1", "precision-aware-bf16")


def test_an_update_on_the_host_needs_the_precision_aware_optimizer() -> None:
    plan = "dp8 mb1 zero1 offload-optimizer"
    assert "updates on the host with precision-aware" in broken(plan, "sgd")["offload"]
    assert not broken(plan, "precision-aware")
    assert not broken(plan)  # nothing stated: the export turns it on


def test_an_optimizer_or_dtype_that_a_stack_lacks() -> None:
    assert "has adamw, adamw-bf16" in broken("dp8 mb1 zero3", "sgd", stack="torchtitan")["optimizer"]
    assert "has fp32" in broken("dp8 mb1 zero3", grad_dtype="bf16", stack="torchtitan")["grad_dtype"]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_gradients_in_bf16_are_of_bf16_products(precision: str) -> None:
    assert "bf16, fp8 or fp4" in broken(f"dp8 mb1 zero1 {precision}", grad_dtype="bf16")["grad_dtype"]
    assert not broken("dp8 mb1 zero1 fp8", grad_dtype="bf16")
