"""Megatron-Core's own configurations take the values that are exported for it."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.export.handover import Handover
from trainwright.export.megatron import plan_flags
from trainwright.export.megatron_bridge import ddp_values, model_values, optimizer_values
from trainwright.export.targets import export_text
from trainwright.plan.strategy import parse_strategy

pytest.importorskip("megatron.core")
transformer_config = pytest.importorskip("megatron.core.transformer.transformer_config")

STRATEGIES = (
    "dp8 mb1 zero0 bf16", "dp8 tp4 sp pp4 vpp2 interleaved mb1 zero1 recompute=norm+mlp bf16",
    "dp4 cp2 allgather mb2 zero1 hsdp4 full bf16", "dp8 pp2 mb1 zero1 full4 bf16", "dp16 mb1 zero3 fp8",
    "dp8 tp2 sp ep4 mb1 zero1 offload-optimizer bf16",
)  # fmt: skip
# Arguments of the training script and of the optimizer, which are no fields of the two configurations.
OF_THE_SCRIPT = {
    "micro_batch_size", "global_batch_size", "bf16", "fp16", "fp8_format", "use_mcore_models",
    "transformer_impl", "ckpt_format", "no_gradient_accumulation_fusion", "optimizer_cpu_offload",
    "optimizer_offload_fraction", "use_precision_aware_optimizer", "no_overlap_p2p_communication",
    "num_virtual_stages_per_pipeline_rank", "fp4_format", "use_tp_pp_dp_mapping",
}  # fmt: skip
NEWER = {"megatron_fsdp_main_grads_dtype"}  # arguments of 0.20, which 0.16.1 does not have


def handover(text: str) -> Handover:
    plan = parse_strategy(text)
    return Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch * 8, seq=4096)


@pytest.mark.parametrize("text", STRATEGIES)
def test_its_configurations_are_built_from_the_values(text: str) -> None:
    from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig

    given = handover(text)
    values = model_values(given)
    values.pop("seq_length")  # of the recipe's provider
    experts = {"num_moe_experts": 8} if given.strategy.ep > 1 else {}
    config = transformer_config.TransformerConfig(
        num_layers=32, hidden_size=512, num_attention_heads=8, bf16=True, **experts, **values,
        pipeline_dtype=__import__("torch").bfloat16 if given.strategy.pp > 1 else None,
    )  # fmt: skip
    assert config.tensor_model_parallel_size == given.strategy.tp
    DistributedDataParallelConfig(**ddp_values(given.strategy))


@pytest.mark.parametrize("text", [*STRATEGIES, "dp1 mb1 offload-optimizer bf16"])
def test_its_optimizer_is_built_from_the_values(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that an offloaded optimizer is a distributed one, which its constructor insists on."""
    from megatron.core.optimizer import optimizer_config

    given = handover(text)
    monkeypatch.setattr(optimizer_config, "is_te_min_version", lambda *values: True)
    values = optimizer_values(given.strategy)
    config = optimizer_config.OptimizerConfig(optimizer="adam", lr=0.1, bf16=True, **values)
    assert config.optimizer_cpu_offload == (given.strategy.offload == "optimizer")
    told = {flag[0] for flag in plan_flags(given)}
    assert ("--use-distributed-optimizer" in told) == config.use_distributed_optimizer
    assert ("--use-precision-aware-optimizer" in told) == config.use_precision_aware_optimizer


@pytest.mark.parametrize("text", STRATEGIES)
def test_every_flag_is_a_field_of_theirs_or_the_scripts(text: str) -> None:
    from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig

    known = {field.name for field in fields(transformer_config.TransformerConfig)}
    known |= {field.name for field in fields(DistributedDataParallelConfig)} | OF_THE_SCRIPT | NEWER
    names = {flag[0].removeprefix("--").replace("-", "_") for flag in plan_flags(handover(text))}
    assert names <= known


def test_the_recipe_sets_every_value(tmp_path: Path) -> None:
    given = handover(STRATEGIES[1].replace("norm+", "core_attn+"))  # norms need the model
    space: dict[str, object] = {}
    exec(export_text(given, "megatron-bridge"), space)
    parts = ("model", "ddp", "train", "optimizer", "dist", "dataset", "comm_overlap")
    recipe = SimpleNamespace(**{part: SimpleNamespace() for part in parts})
    found = space["apply_plan"](recipe)  # type: ignore[operator]
    assert vars(found.model) == model_values(given)
    assert vars(found.ddp) == ddp_values(given.strategy)
    assert vars(found.optimizer) == optimizer_values(given.strategy)
    assert found.train.global_batch_size == given.global_batch
    assert found.dataset.seq_length == found.model.seq_length == 4096
    assert found.comm_overlap.overlap_p2p_comm is True
