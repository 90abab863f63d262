"""A row of published text becomes a model, a cluster and the knobs that it states."""

import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.model.graph import parameters
from trainwright.plan.strategy import EVERY_LAYER, OFFLOADS, PRECISIONS, RECOMPUTES
from trainwright.validate.rows import interconnect_bytes_per_s, parse_case

ROW = {
    "id": "r1", "source": "a paper", "hardware": "NVIDIA A100-SXM 80GB", "gpus": "64", "gpus_per_node": "8",
    "framework": "megatron-lm", "model": "GPT 1.2B", "layers": "24", "hidden": "2048", "heads": "16",
    "vocab": "51200", "seq_len": "2048", "global_batch": "512", "dp": "16", "tp": "4", "pp": "1",
    "micro_batch": "2", "step_time_s": "3.5", "memory_gib": "41.5",
}  # fmt: skip


def row(**cells: str) -> dict[str, str]:
    return ROW | cells


def test_a_row_states_a_case() -> None:
    case = parse_case(ROW)
    assert (case.id, case.source, case.framework) == ("r1", "a paper", "megatron-lm")
    assert (case.cluster.device.name, case.cluster.count, case.cluster.node_size) == ("a100-80gb", 64, 8)
    assert (case.seq, case.global_batch, case.step_time_s, case.memory_gib) == (2048, 512, 3.5, 41.5)


def test_a_model_is_built_from_its_sizes() -> None:
    # 12·24·2048² + (51200 + 2048)·2048 = 1.317e9, and as much again for an untied head (104.9e6)
    count = parameters(parse_case(ROW).graph)
    assert count == pytest.approx(12 * 24 * 2048**2 + (2 * 51200 + 2048) * 2048, rel=2e-3)


def test_a_stated_size_decides_whether_the_embedding_is_tied() -> None:
    tied = parameters(parse_case(row(params_b="1.317")).graph)
    assert parameters(parse_case(ROW).graph) - tied == 51200 * 2048


def test_a_model_of_the_catalog_is_recognised() -> None:
    cells = {"model": "GPT-3 175B", "layers": "96", "hidden": "12288", "heads": "96", "vocab": "50257"}
    assert parse_case(row(**cells)).graph.name == "gpt3-175b"
    assert parse_case(row(**cells | {"model": "gpt3-175b"})).graph.name == "gpt3-175b"


def test_a_model_of_the_catalog_with_other_sizes_is_another_model() -> None:
    assert parse_case(row(model="gpt3-175b")).graph.sizes["hidden"] == 2048


def test_stated_knobs_are_fixed_and_empty_ones_are_open() -> None:
    fixed = parse_case(row(tp="")).fixed
    assert (fixed["dp"], fixed["pp"], fixed["micro_batch"]) == ((16,), (1,), (2,))
    assert not {"tp", "zero", "sp", "recompute"} & set(fixed)


def test_degrees_that_do_not_make_the_devices_are_mended_by_dp() -> None:
    assert parse_case(row(dp="64")).fixed["dp"] == (
        16,
    )  # 64 devices / tp 4: some sources count tp ranks in dp


@pytest.mark.parametrize(("text", "zero"), [
        ("1", 1), ("zero2", 2), ("ZeRO-1", 1), ("3", 3), ("2.0", 2), ("fsdp", 3), ("fsdp2", 3),
        ("full_shard", 3), ("hsdp", 3), ("ddp", 0),
    ],
)  # fmt: skip
def test_zero_is_a_stage_or_a_name_for_full_sharding(text: str, zero: int) -> None:
    assert parse_case(row(zero=text)).fixed["zero"] == (zero,)


def test_hybrid_sharding_is_inside_a_node() -> None:
    assert parse_case(row(zero="hsdp", gpus_per_node="4")).fixed["shard"] == (4,)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("full", "full"),
        ("Selective", "core_attn"),
        ("block", "full"),
        ("none", "none"),
        ("off", "none"),
        ("no", "none"),
        ("yes", "full"),
        ("true", "full"),
        ("on", "full"),
        ("minimal", "norm+rope+context+act+moe_act"),
        ("mlp+norm", "norm+mlp"),
        ("minimal_with_context", "selective"),
        ("selective_attention", "core_attn"),
    ],
)
def test_recomputation_is_read_in_its_many_names(text: str, name: str) -> None:
    assert parse_case(row(recompute=text)).fixed["recompute"] == (RECOMPUTES.index(name),)


@pytest.mark.parametrize(
    ("framework", "detail", "experts", "name"),
    [
        ("megatron-core", "", "", "core_attn"),
        ("megatron-core", "--recompute-activations (core attention)", "", "core_attn"),
        ("megatron-core", "mlp", "", "mlp"),
        ("megatron-core", "mlp,core_attn", "", "core_attn+mlp"),
        ("megatron-core", "layernorm", "", "none"),
        ("megatron-core", "layernorm,moe_act", "8", "mlp_norm+moe_act"),
        ("megatron-core", "norm, act, shared_expert", "8", "mlp_norm+moe_act+shared_experts"),
        ("torchtitan", "per-op SAC", "", "dots"),
        ("megatron-kwai", "ours: balanced checkpointing", "", "selective"),
    ],
)
def test_selective_recomputation_is_what_the_row_and_its_software_say(
    framework: str, detail: str, experts: str, name: str
) -> None:
    stated = row(recompute="selective", recompute_detail=detail, framework=framework)
    stated |= {"experts": experts, "topk": "2" if experts else ""}
    assert parse_case(stated).fixed["recompute"] == (RECOMPUTES.index(name),)


def test_a_number_of_recomputed_layers_is_read() -> None:
    case = parse_case(row(recompute="full", recompute_detail="full, recompute_num_layers=5"))
    assert case.fixed["recompute_layers"] == (5,)


def test_a_precision_is_known_only_if_stated() -> None:
    assert "precision" not in parse_case(ROW).fixed
    assert parse_case(row(precision="FP8")).fixed["precision"] == (PRECISIONS.index("fp8"),)


def test_sequence_parallelism_without_tensor_parallelism_is_none() -> None:
    assert parse_case(row(sequence_parallel="1")).fixed["sp"] == (1,)
    assert parse_case(row(sequence_parallel="1", tp="1")).fixed["sp"] == (0,)


@pytest.mark.parametrize(
    ("text", "kind"), [("flash", "flash"), ("unfused", "unfused"), ("torch", "unfused"), ("", "flash")]
)
def test_attention_is_fused_or_not(text: str, kind: str) -> None:
    assert parse_case(row(attention=text)).attention == kind


def test_a_table_of_failures_may_use_its_own_names() -> None:
    cells = {k: v for k, v in ROW.items() if k not in ("model", "global_batch", "framework", "step_time_s")}
    case = parse_case(
        cells | {"model_name": "x", "global_batch_seqs": "256", "source": "The Ultra-Scale Playbook"}
    )
    assert (case.global_batch, case.framework, case.step_time_s) == (256, "nanotron", None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8x200Gb/s HDR IB", 200e9),  # 8·200e9 / 8 bits
        ("NVLink + 4x100Gbps OPA", 50e9),
        ("1600 Gbps/node EFA", 200e9),
        ("400 Gb/s per node", 50e9),
        ("NVSwitch", 0.0),
        ("", 0.0),
    ],
)
def test_a_network_is_read_from_its_description(text: str, value: float) -> None:
    assert interconnect_bytes_per_s(text) == pytest.approx(value)


def test_a_described_network_is_shared_by_the_devices_of_a_node() -> None:
    (_, fabric) = parse_case(row(interconnect="4x100Gb/s")).cluster.levels
    assert fabric.bytes_per_s == pytest.approx(50e9 / 8)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"gpus": ""}, "column gpus"),
        ({"gpus": "eight"}, 'column gpus "eight": is not a number'),
        ({"gpus": "0"}, "needs a whole number above zero"),
        ({"layers": "1.5"}, "column layers"),
        ({"global_batch": ""}, "column global_batch"),
        ({"precision": "int3"}, 'column precision "int3": is not known'),
        ({"step_time_s": "fast"}, "column step_time_s"),
        ({"step_time_s": "-1"}, 'column step_time_s "-1": is negative'),
        ({"step_time_s": "1e-300"}, "is less than 1e-09"),
        ({"memory_gib": "-0.5"}, "column memory_gib .* is negative"),
        ({"memory_gib": "nan"}, 'column memory_gib "nan": is not a finite number'),
        ({"gpus": "inf"}, "column gpus .* is not a finite number"),
        ({"gpus": "10000001"}, "is more than 10,000,000"),
        ({"layers": "10001"}, "is more than 10,000"),
        ({"hidden": "1e9"}, "column hidden .* is more than 100,000,000"),
        ({"global_batch": "1e10"}, "is more than 1,000,000,000"),
        ({"micro_batch": "1e7"}, "is more than 1,000,000"),
        ({"tp": "-2"}, 'column tp "-2": is negative'),
        ({"tp": "1.5"}, 'column tp "1.5": is not a whole number'),
        ({"tp": "1e6"}, "column tp, pp, cp .* multiply to more than 64 devices"),
        ({"zero": "4"}, 'column zero "4": is no stage of ZeRO; use 0 to 3'),
        ({"zero": "zero-infinity"}, "is no stage of ZeRO"),
        ({"recompute": "sometimes"}, 'column recompute "sometimes": is not known; use one of none'),
        ({"gated_ffn": "perhaps"}, "column gated_ffn"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(cells: dict[str, str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_case(row(**cells))


def test_heads_that_do_not_divide_the_hidden_size_are_rounded() -> None:
    hidden = parse_case(row()).graph.sizes["hidden"]
    assert parse_case(row(heads="17")).graph.sizes["head_dim"] == round(hidden / 17)


def test_unknown_hardware_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match='device "h1000": no such name; did you mean'):
        parse_case(row(hardware="h1000"))


def test_digits_without_end_are_no_network() -> None:
    assert interconnect_bytes_per_s("8x" + "9" * 5000) == 0.0


def test_activations_of_a_number_of_layers_on_the_host_are_read() -> None:
    fixed = parse_case(row(offload="activations of 4 layers to host", recompute="none")).fixed
    assert (fixed["offload"], fixed["offload_layers"]) == ((OFFLOADS.index("activations"),), (4,))
    with pytest.raises(BadInput, match="the model has"):
        parse_case(row(offload="activations of 999 layers to host"))


def test_a_share_of_activations_is_that_share_of_a_stages_layers() -> None:
    stages = int(ROW["pp"])
    layers = -(-int(ROW["layers"]) // stages)
    fixed = parse_case(row(offload="activations 50.0 % of each layer to host")).fixed
    assert fixed["offload_layers"] == (round(layers / 2),)
    assert parse_case(row(offload="activations 100 % to host")).fixed["offload_layers"] == (EVERY_LAYER,)
    assert "offload" not in parse_case(row(offload="activations 0.1 % to host")).fixed


def test_rows_say_which_layers_have_experts() -> None:
    routed = row(experts="8", topk="2", ffn_hidden="4096", model="x", gated_ffn="1")
    whole = parameters(parse_case(routed).graph)
    half = parameters(parse_case(routed | {"moe_layers": "12"}).graph)
    most = parameters(parse_case(routed | {"moe_layers": "21"}).graph)
    shared = parameters(parse_case(routed | {"shared_experts": "1"}).graph)
    assert half < most < whole < shared


def test_a_size_after_the_name_of_a_model_is_no_part_of_it() -> None:
    stated = {
        "layers": "48",
        "hidden": "5120",
        "heads": "40",
        "vocab": "202048",
        "experts": "128",
        "topk": "1",
    }
    case = parse_case(row(model="Llama-4-Maverick-400B", params_b="400", **stated))
    assert case.graph.name == "llama4-maverick"
    assert case.remarks == ()


def test_a_model_of_another_size_than_stated_is_doubtful() -> None:
    billions = parameters(parse_case(ROW).graph) / 1e9
    case = parse_case(row(params_b=str(10 * billions)))
    assert case.doubt == pytest.approx(10.0, rel=0.05)
    assert "parameters are stated" in case.remarks[0]
    assert parse_case(row(params_b=str(billions))).remarks == ()


@pytest.mark.parametrize("text", ["activations 140 % to host", "optimizer 25%", "activations (fine-grained)"])
def test_parts_of_what_layers_keep_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not one of a strategy's"):
        parse_case(row(offload=text))
