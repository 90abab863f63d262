"""One operator's time follows from its shape, the device's rates and the stack's kernels."""

import pytest

from tests.builders import floats, free_stack, gpt, perfect, round_device
from trainwright.cost.operators import Machine, bytes_of, matmul_shape, op_time
from trainwright.model.graph import Graph, Op, Tensor

# 1,024 tokens, so that every product is whole tiles on 64 units.
SIZES = {
    "batch": floats(1), "seq": floats(1024), "seq_kv": floats(1024), "hidden": floats(1024),
    "heads": floats(8), "kv_heads": floats(8), "head_dim": floats(128), "v_dim": floats(128),
    "ffn": floats(4096), "vocab": floats(8192),
}  # fmt: skip


def machine(precision: str = "bf16", **stack: object) -> Machine:
    return Machine(
        device=round_device(compute_units=64),
        efficiency=perfect(),
        stack=free_stack(**stack),
        precision=precision,
    )


def layer_op(name: str, graph: Graph | None = None) -> Op:
    layer = (graph or gpt()).segments[1].block
    return next(op for op in layer.ops if op.name == name)


def test_a_tensor_takes_its_elements_times_their_width() -> None:
    hidden = Tensor(name="x", dims=("batch", "seq", "hidden"))
    mask = Tensor(name="m", dims=("batch", "seq", "hidden"), element="mask")
    # 1·1024·1024 elements
    assert bytes_of(hidden, SIZES, 2.0) == pytest.approx(2 * 1024**2)
    assert bytes_of(mask, SIZES, 2.0) == pytest.approx(1024**2)


def test_queries_keys_and_values_are_one_product() -> None:
    shape = matmul_shape(layer_op("attention.qkv"), SIZES)
    assert [float(each[0]) for each in shape] == [1024, 3 * 8 * 128, 1024]


def test_the_output_projection_sums_over_heads() -> None:
    shape = matmul_shape(layer_op("attention.output"), SIZES)
    assert [float(each[0]) for each in shape] == [1024, 1024, 8 * 128]


def test_a_product_costs_its_flops_three_times_over_a_step() -> None:
    time = op_time(layer_op("ffn.up"), SIZES, machine())
    # 2·1024·4096·1024 FLOPs / 100 TFLOP/s = 85.9 us forward, for input gradients, for weight gradients
    for part in (time.forward_s, time.data_s, time.weight_s):
        assert part == pytest.approx(2 * 1024 * 4096 * 1024 / 100e12)


def test_a_slow_stack_keeps_a_share_of_the_rate() -> None:
    fast, slow = (op_time(layer_op("ffn.up"), SIZES, machine(pace=pace)) for pace in (1.0, 0.5))
    assert slow.forward_s == pytest.approx(2 * fast.forward_s)


def test_eight_bits_double_the_rate_of_layers_but_not_of_logits() -> None:
    graph = gpt()
    up = layer_op("ffn.up", graph)
    logits = next(op for op in graph.segments[-1].block.ops if op.name == "logits")
    wide, narrow = machine(), machine("fp8")
    # the weight gradient casts nothing, so it shows the bare rate: 200 against 100 TFLOP/s
    assert op_time(up, SIZES, narrow).weight_s == pytest.approx(op_time(up, SIZES, wide).weight_s / 2)
    assert op_time(logits, SIZES, narrow).weight_s == pytest.approx(op_time(logits, SIZES, wide).weight_s)


def test_casts_to_eight_bits_are_paid_for() -> None:
    up = layer_op("ffn.up")
    assert op_time(up, SIZES, machine("fp8")).forward_s > op_time(up, SIZES, machine("fp8")).weight_s


def test_a_norm_is_its_traffic() -> None:
    # reads and writes 2 MiB at 1 TB/s
    time = op_time(layer_op("norm1"), SIZES, machine())
    assert time.forward_s == pytest.approx(2 * 2 * 1024**2 / 1e12)


def test_a_stack_that_fuses_less_moves_more() -> None:
    once, twice = (op_time(layer_op("norm1"), SIZES, machine(traffic=traffic)) for traffic in (1.0, 2.0))
    assert twice.forward_s == pytest.approx(2 * once.forward_s)


def test_a_causal_mask_halves_the_work_of_fused_attention() -> None:
    causal = op_time(layer_op("attention.core"), SIZES, machine())
    full = op_time(layer_op("attention.core", gpt(kind="encoder")), SIZES, machine())
    assert full.forward_s == pytest.approx(2 * causal.forward_s)


def test_the_backward_of_fused_attention_is_two_and_a_half_forwards() -> None:
    time = op_time(layer_op("attention.core"), SIZES, machine())
    assert time.data_s == pytest.approx(2.5 * time.forward_s)


def test_unfused_attention_pays_for_the_score_matrix() -> None:
    fused, unfused = (
        op_time(layer_op("attention.core"), SIZES, machine(attention=kind)) for kind in ("flash", "unfused")
    )
    # softmax alone: 8·1024² scores · (4·2 + 1) bytes / 1 TB/s = 75.5 us
    assert unfused.forward_s > 75e-6
    assert unfused.forward_s > fused.forward_s
    assert unfused.kernels > fused.kernels


@pytest.mark.parametrize(
    "op", [op for segment in gpt().segments for op in segment.block.ops], ids=lambda op: op.name
)
def test_every_operator_takes_time_and_launches_kernels(op: Op) -> None:
    sizes = {**SIZES, "positions": floats(2048)}
    time = op_time(op, sizes, machine())
    assert (time.forward_s > 0).all()
    assert (time.data_s > 0).all()
    assert time.kernels >= 1
