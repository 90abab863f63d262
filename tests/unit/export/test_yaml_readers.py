"""Configurations of nanotron, MaxText and accelerate: what is read of them, named and refused."""

import pytest

from tests.fuzz.stacks import ACCELERATE, MAXTEXT, NANOTRON
from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.model.load import load_model


def read(text: str, devices: int | None = 8, name: str = "job.yaml", **stated: object) -> Configured:
    return read_text(text, name, stated=StatedSettings(devices=devices, **stated))  # type: ignore[arg-type]


def test_nanotron_states_its_degrees_batch_and_model() -> None:
    found = read(NANOTRON, devices=2)
    assert str(found.strategy) == "dp1 tp2 sp mb2 zero0 bf16"
    assert (found.global_batch, found.seq, found.stack) == (8, 512, "nanotron")
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.hidden, found.architecture.gated) == (4, 256, True)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("pp: 1", "pp: 2", "pp2 mb2 zero0 1f1b"),
        ("pp: 1\n  pp_engine: 1f1b", "pp: 2", "pp2 mb2 zero0 gpipe"),  # afab is the default
        ("REDUCE_SCATTER", "ALL_REDUCE", "dp1 tp2 mb2"),
        ("pp_engine: 1f1b", "recompute_layer: true", "full"),
        ("zero_stage: 0", "zero_stage: 1", "zero0"),  # which has one rank to shard over
        ("dp: 1", "dp: 4", "dp4 tp2"),
        ("dtype: bfloat16", "dtype: float32", "fp32"),
    ],
)
def test_each_setting_of_nanotron_is_read(old: str, new: str, words: str) -> None:
    assert words in str(read(NANOTRON.replace(old, new)).strategy)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tp_mode", "tp_modes", 'setting "parallelism.tp_modes": no such name; did you mean'),
        ("pp_engine: 1f1b", "pp_engine: zbv", "pp_engine"),
        ("is_llama_config: true", "is_qwen2_config: true", "makes it another model"),
        ("dp: 1", "dp: many", "must be a whole number"),
        ("dp: 1", "dp: 1\n  dp: 2", "stands twice"),
        ("dp: 1", "dp: [1", "is not YAML"),
        ("num_hidden_layers: 4", "num_hidden_layers: 1000000000", "is more than 10,000"),
        ("tokens:", "token:", "is YAML of no tool that is known"),
    ],
)
def test_what_nanotron_does_not_have_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(NANOTRON.replace(old, new))


def test_another_model_of_nanotron_is_accepted_where_the_model_is_stated() -> None:
    text = NANOTRON.replace("is_llama_config: true", "is_qwen2_config: true")
    found = read(text, architecture=load_model("qwen2.5-7b"))
    assert (found.strategy.tp, found.architecture) == (2, None)


def test_maxtext_states_axes_and_one_of_them_takes_the_rest() -> None:
    found = read(MAXTEXT, devices=8)
    assert str(found.strategy) == "dp8 mb2 zero3 recompute=norm+rope+context+act+moe_act bf16"
    assert (found.global_batch, found.seq, found.stack) == (16, 512, "maxtext")
    assert found.architecture is not None
    assert found.architecture.heads == 4


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("ici_tensor_parallelism: 2", "dp4 tp2 sp mb4 zero3"),
        ("ici_data_parallelism: 2", "dp8 mb2 zero3 hsdp4"),
        ("ici_context_parallelism: 2", "dp4 cp2 allgather mb4 zero3"),
        ("ici_pipeline_parallelism: 2\nnum_pipeline_microbatches: 4", "dp4 pp2 vpp2 mb1 zero3 interleaved"),
        ("ici_pipeline_parallelism: 2\nnum_layers_per_pipeline_stage: 2", "dp4 pp2 mb2 zero3 gpipe"),
        ("remat_policy: full", "zero3 full bf16"),
        ("quantization: fp8", "fp8"),
        ("optimizer_memory_host_offload: true", "offload-optimizer"),
        ("ici_fsdp_parallelism: 1\nici_data_parallelism: -1", "dp8 mb2 zero0"),
    ],
)
def test_each_setting_of_maxtext_is_read(more: str, words: str) -> None:
    keys = {line.split(":")[0] for line in more.splitlines()}
    kept = [line for line in MAXTEXT.splitlines() if line.split(":")[0] not in keys]
    assert words in str(read("\n".join([*kept, more])).strategy)


def test_what_of_maxtext_is_not_predicted_is_named() -> None:
    found = read(MAXTEXT + "weight_dtype: bfloat16\ngrad_dtype: float32\nlog_period: 5\n")
    assert found.notes == ("Not considered, and it matters: weight_dtype.",)
    found = read(MAXTEXT.replace("remat_policy: minimal", "remat_policy: qkv_proj_offloaded"))
    rest = "remat_policy qkv_proj_offloaded, predicted as full."
    assert found.notes == (f"Not considered, and it matters: {rest}",)
    found = read(MAXTEXT.replace("remat_policy: minimal", "remat_policy: minimal_flash"))
    assert (found.strategy.recompute, found.notes) == ("norm+rope+act+moe_act", ())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("ici_tensor_parallelizm: 2", "did you mean"),
        ("ici_autoregressive_parallelism: 2", "splits the job in a way that is not read"),
        ("use_sft: true", "another job than pretraining"),
        ("quantization: int8", "quantization"),
        ("num_experts: 8\nfirst_num_dense_layers: 3", "makes it another model"),
        ("ici_data_parallelism: -1", "with -1 at most once"),
        ("context_parallel_strategy: usp\nici_context_parallelism: 2", "context_parallel_strategy"),
    ],
)
def test_what_of_maxtext_is_not_read_is_refused(more: str, said: str) -> None:
    keys = {line.split(":")[0] for line in more.splitlines()}
    kept = [line for line in MAXTEXT.splitlines() if line.split(":")[0] not in keys]
    with pytest.raises(BadInput, match=said):
        read("\n".join([*kept, more]))


def test_accelerate_takes_its_batch_from_the_launch_line_in_a_comment_or_from_the_user() -> None:
    found = read(ACCELERATE, devices=2)
    assert str(found.strategy) == "dp2 mb2 zero3 bf16"
    assert (found.global_batch, found.stack, found.notes) == (16, "accelerate", ())
    bare = ACCELERATE.partition("\n")[2]
    with pytest.raises(BadInput, match=r"micro batch.* state --micro-batch N"):
        read(bare)
    assert read(bare, micro_batch=4, global_batch=64).global_batch == 64


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("fsdp_reshard_after_forward: true", "fsdp_reshard_after_forward: false", "dp8 mb2 zero2"),
        (
            "fsdp_version: 2\n  fsdp_reshard_after_forward: true",
            "fsdp_sharding_strategy: SHARD_GRAD_OP",
            "zero2",
        ),
        ("fsdp_version: 2\n  fsdp_reshard_after_forward: true", "fsdp_sharding_strategy: 1", "zero3"),
        ("fsdp_activation_checkpointing: false", "fsdp_activation_checkpointing: true", "full"),
        ("mixed_precision: bf16", "mixed_precision: no", "fp32"),
        ("distributed_type: FSDP", "distributed_type: MULTI_GPU", "dp8 mb2 zero0"),
        (
            "fsdp_config:",
            "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
            "  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 2\nfsdp_config:",
            "dp4 tp2 mb2 zero3 hsdp2",
        ),
        (
            "distributed_type: FSDP",
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
            "  offload_optimizer_device: cpu\n  gradient_accumulation_steps: 2",
            "dp8 mb2 zero2 offload-optimizer",
        ),
    ],
)
def test_each_setting_of_accelerate_is_read(old: str, new: str, words: str) -> None:
    assert old in ACCELERATE
    assert words in str(read(ACCELERATE.replace(old, new)).strategy)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fsdp_version", "fsdp_versoin", "did you mean"),
        ("distributed_type: FSDP", "distributed_type: MEGATRON_LM", "distributed_type"),
        (
            "distributed_type: FSDP",
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: a",
            "name that file",
        ),
        (
            "fsdp_version: 2\n  fsdp_reshard_after_forward: true",
            "fsdp_sharding_strategy: HYBRID_SHARD",
            "dp_shard_size",
        ),
        ("fsdp_config:", "parallelism_config:\n  parallelism_config_sp_size: 2\nfsdp_config:", "not read"),
        ("mixed_precision: bf16", "mixed_precision: int8", "mixed_precision"),
    ],
)
def test_what_of_accelerate_is_not_read_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(ACCELERATE.replace(old, new))


def test_what_of_accelerate_matters_is_named() -> None:
    text = ACCELERATE.replace("TRANSFORMER_BASED_WRAP", "NO_WRAP") + "  fsdp_offload_params: true\n"
    first, second, third = read(text).notes
    assert "fsdp_config.fsdp_offload_params" in first
    assert "without a wrap policy" in second
    assert "launches 2 processes" in third


def test_accelerate_in_json_is_read() -> None:
    text = '{"distributed_type": "FSDP", "mixed_precision": "bf16", "num_processes": 8, "fsdp_config": {}}'
    assert str(read(text, name="a.json", micro_batch=1).strategy) == "dp8 mb1 zero3 bf16"


def test_a_short_text_that_becomes_long_is_refused_at_once() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 12)]
    with pytest.raises(BadInput, match="aliases"):
        read("\n".join(["base_config: base.yml", *lines]))
