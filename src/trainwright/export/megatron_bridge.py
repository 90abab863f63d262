"""A plan as the recipe values of Megatron-Bridge and NeMo: the fields of Megatron-Core's configurations."""

from collections.abc import Iterator

from trainwright.export import megatron
from trainwright.export.ability import Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import Strategy

NAME = "Megatron-Bridge"
_PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp4": "bf16_with_nvfp4_mixed",
}  # fmt: skip


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the values cannot say."""
    strategy = canonical(handover.strategy)
    yield from ability_gaps(strategy, megatron.ABILITY, NAME)
    yield from megatron.pairing_gaps(strategy)
    yield from megatron.stage_gaps(handover)


def remarks(handover: Handover) -> Iterator[str]:
    """Where the values mean something a little different, and what to do with them."""
    yield from (each for each in megatron.remarks(handover) if not each.startswith("No model"))
    yield "The model is the recipe's: cfg = RECIPE(); apply_plan(cfg)."
    yield (
        f"For {handover.strategy.devices} devices, dp {handover.strategy.dp}: torchrun "
        f"--nnodes={handover.nodes} --nproc-per-node={handover.processes_per_node}, which set dp."
    )


def model_values(handover: Handover) -> dict[str, object]:
    """Fields of the model's configuration (ModelParallelConfig and TransformerConfig)."""
    strategy = canonical(handover.strategy)
    values: dict[str, object] = {
        "tensor_model_parallel_size": strategy.tp, "sequence_parallel": strategy.sp,
        "context_parallel_size": strategy.cp, "pipeline_model_parallel_size": strategy.pp,
        "pipeline_model_parallel_layout": None,
        "virtual_pipeline_model_parallel_size": strategy.vpp if strategy.vpp > 1 else None,
        "expert_model_parallel_size": strategy.ep, "expert_tensor_parallel_size": strategy.etp,
    }  # fmt: skip
    if strategy.cp > 1:
        values["cp_comm_type"] = megatron.CP_TYPES[strategy.cp_kind]
    if handover.seq:
        values["seq_length"] = handover.seq
    return values | _sends(strategy) | _recompute(handover)


def _sends(strategy: Strategy) -> dict[str, object]:
    """Whether stages send behind computing, which interleaved ones can."""
    if strategy.pp == 1:
        return {}
    behind = strategy.overlap and strategy.vpp > 1
    return {"overlap_p2p_comm": behind, "batch_p2p_comm": not behind}


def _recompute(handover: Handover) -> dict[str, object]:
    """All four fields, since the recipe may have set any."""
    strategy = handover.strategy
    values: dict[str, object] = {
        "recompute_granularity": None, "recompute_modules": None, "recompute_method": None,
        "recompute_num_layers": None,
    }  # fmt: skip
    if strategy.recompute == "selective":
        modules = megatron.recompute_modules(handover)
        return values | {"recompute_granularity": "selective", "recompute_modules": modules}
    if strategy.recompute == "none":
        return values
    layers = strategy.recompute_layers // strategy.vpp
    return values | {
        "recompute_granularity": "full", "recompute_method": "block" if layers else "uniform",
        "recompute_num_layers": layers or 1,
    }  # fmt: skip


def ddp_values(strategy: Strategy) -> dict[str, object]:
    """Fields of DistributedDataParallelConfig."""
    strategy = canonical(strategy)
    return {
        "use_distributed_optimizer": megatron.is_distributed(strategy),
        "overlap_grad_reduce": strategy.overlap,
        "overlap_param_gather": strategy.overlap and strategy.zero >= 1,
        "num_distributed_optimizer_instances": megatron.replicas(strategy) if strategy.zero else 1,
        "use_megatron_fsdp": strategy.zero in megatron.SHARDED,
        "data_parallel_sharding_strategy": megatron.SHARDED.get(strategy.zero, "no_shard"),
    }


def optimizer_values(strategy: Strategy) -> dict[str, object]:
    """Fields of OptimizerConfig; the first is also one of `ddp`, and either turns on both."""
    strategy = canonical(strategy)
    values: dict[str, object] = {
        "use_distributed_optimizer": megatron.is_distributed(strategy),
        "optimizer_cpu_offload": strategy.offload == "optimizer",
    }
    if strategy.offload == "optimizer":
        values |= {"optimizer_offload_fraction": 1.0, "use_precision_aware_optimizer": True}
    return values


def overlap_values(strategy: Strategy) -> dict[str, object]:
    """Fields of CommOverlapConfig, which some recipes have and which has the last word on overlap."""
    named = ("overlap_grad_reduce", "overlap_param_gather")
    return {name: ddp_values(strategy)[name] for name in named} | _sends(canonical(strategy))


def render(handover: Handover, notes: list[str]) -> str:
    """A Python module with the function that sets them."""
    strategy = canonical(handover.strategy)
    lines = [
        *_set("cfg.model", model_values(handover)), *_set("cfg.ddp", ddp_values(strategy)),
        *_set("cfg.optimizer", optimizer_values(strategy)),
        f"cfg.dist.use_tp_pp_dp_mapping = {strategy.order != ORDERS[0]}",
        f"cfg.train.micro_batch_size = {strategy.micro_batch}",
        f"cfg.train.global_batch_size = {handover.global_batch}",
        *([f"cfg.dataset.seq_length = {handover.seq}"] if handover.seq else []),
        *(['cfg.checkpoint.ckpt_format = "fsdp_dtensor"'] if strategy.zero in megatron.SHARDED else []),
        *_precision(strategy),
        "if cfg.comm_overlap is not None:  # which has the last word on overlap",
        *(f"    {line}" for line in _set("cfg.comm_overlap", overlap_values(strategy))),
    ]  # fmt: skip
    head = "import torch\n\n\n" if strategy.precision == "fp32" else "\n"
    body = "\n".join(f"    {line}" for line in lines)
    return _MODULE.format(notes=comment(notes), head=head, body=body)


def _set(section: str, values: dict[str, object]) -> list[str]:
    return [f"{section}.{name} = {value!r}" for name, value in values.items()]


def _precision(strategy: Strategy) -> list[str]:
    """Mixed precision by the name of its recipe; there is none for single precision throughout."""
    if strategy.precision != "fp32":
        return [f"cfg.mixed_precision = {_PRECISIONS[strategy.precision]!r}"]
    return [
        "cfg.mixed_precision = None",
        "for part in (cfg.model, cfg.optimizer):",
        "    part.bf16, part.fp16, part.params_dtype = False, False, torch.float32",
        "cfg.model.pipeline_dtype, cfg.model.autocast_dtype = torch.float32, torch.float32",
    ]


_MODULE = '''{notes}{head}
def apply_plan(cfg):
    """Set what the plan says on a recipe's ConfigContainer."""
{body}
    return cfg
'''
