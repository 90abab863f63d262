"""Operators of experts and of long attention: what the host launches, and what the slowest rank adds."""

from dataclasses import replace

import pytest

from tests.builders import floats, free_stack, gpt, perfect, round_device
from trainwright.cost.operators import Machine, OpTime, op_time
from trainwright.model.build import build_graph
from trainwright.model.graph import Op
from trainwright.model.load import load_model

# 8 experts of a rank, 512 rows each.
SIZES = {
    "batch": floats(1), "seq": floats(1024), "seq_kv": floats(1024), "hidden": floats(1024),
    "heads": floats(8), "kv_heads": floats(8), "head_dim": floats(128), "v_dim": floats(128),
    "ffn": floats(4096), "vocab": floats(8192), "experts": floats(8), "top_k": floats(4),
    "expert_ffn": floats(1024), "expert_rows": floats(4096),
}  # fmt: skip
LAYER = next(s.block for s in build_graph(load_model("gpt-oss-120b")).segments if "moe" in s.block.name)


def expert_op(name: str) -> Op:
    return next(op for op in LAYER.ops if op.name == name)


def time_of(op: Op, efficiency: dict[str, float] | None = None, **stack: object) -> OpTime:
    machine = Machine(
        device=round_device(compute_units=64), efficiency=replace(perfect(), **(efficiency or {})),
        stack=free_stack(**stack), precision="bf16",
    )  # fmt: skip
    return op_time(op, SIZES, machine)


def test_products_of_a_ranks_experts_are_launched_one_by_one() -> None:
    # 1 for the operator, 4 for each of 8 experts
    assert time_of(expert_op("experts.down"), expert_launches=4.0).kernels == pytest.approx(33)
    assert time_of(expert_op("experts.down")).kernels == pytest.approx(1)


def test_routing_is_launched_half_before_and_half_after_experts() -> None:
    for name in ("dispatch", "combine"):
        assert time_of(expert_op(name), route_launches=100.0).kernels == pytest.approx(6 + 50)


def test_cuda_graphs_take_the_place_of_launches() -> None:
    launches = {"route_launches": 100.0, "expert_launches": 4.0}
    for op in LAYER.ops:
        assert time_of(op, cuda_graphs=("full_iteration",), **launches).kernels == 0.0
    partial = ("attn", "moe_router", "moe_preprocess")
    assert time_of(expert_op("router"), cuda_graphs=partial, **launches).kernels == 0.0
    assert time_of(expert_op("dispatch"), cuda_graphs=partial, **launches).kernels == pytest.approx(28)
    assert time_of(expert_op("experts.down"), cuda_graphs=partial, **launches).kernels == pytest.approx(33)


def test_biases_of_experts_that_are_not_fused_are_traffic() -> None:
    fused, apart = (time_of(expert_op("experts.down"), expert_bias_bytes=size) for size in (0.0, 10.0))
    # 4,096 rows of 1,024, 10 bytes each, at 1 TB/s
    assert apart.forward_s - fused.forward_s == pytest.approx(4096 * 1024 * 10 / 1e12)


def test_each_further_expert_fills_and_drains_once_more() -> None:
    one, more = (time_of(expert_op("experts.down"), {"group_s": group_s}) for group_s in (0.0, 1e-6))
    assert more.forward_s - one.forward_s == pytest.approx(7e-6)


def test_attention_reaches_half_of_its_rate_at_its_length() -> None:
    core = next(op for op in gpt().segments[1].block.ops if op.name == "attention.core")
    assert time_of(core, {"attention_length": 1024.0}).forward_s == pytest.approx(2 * time_of(core).forward_s)


def test_an_older_attention_kernel_is_slower_where_the_device_has_its_own() -> None:
    core = next(op for op in gpt().segments[1].block.ops if op.name == "attention.core")
    new, old = (time_of(core, {"attention_fa2": 0.5}, flash_attention=version) for version in (3, 2))
    assert old.forward_s == pytest.approx(2 * new.forward_s)
    assert time_of(core, flash_attention=2).forward_s == time_of(core).forward_s
