"""A plan as the recipe values of Megatron-Bridge and NeMo: the fields of Megatron-Core's configurations."""

from collections.abc import Iterator
from dataclasses import replace

from trainwright.export import megatron
from trainwright.export.ability import Gap, ability_gaps
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import Strategy

NAME = "Megatron-Bridge"
_PRECISIONS = {
    "fp32": "fp32", "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed",
    "fp4": "bf16_with_nvfp4_mixed",
}  # fmt: skip


def gaps(handover: Handover) -> Iterator[Gap]:
    """What the values cannot say."""
    strategy = canonical(handover.strategy)
    yield from ability_gaps(strategy, replace(megatron.ABILITY, orders=ORDERS[:1]), NAME)
    yield from megatron.chunk_gaps(strategy)


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
        "virtual_pipeline_model_parallel_size": strategy.vpp if strategy.vpp > 1 else None,
        "expert_model_parallel_size": strategy.ep, "expert_tensor_parallel_size": strategy.etp,
    }  # fmt: skip
    if strategy.cp > 1:
        values["cp_comm_type"] = megatron.CP_TYPES[strategy.cp_kind]
    if handover.seq:
        values["seq_length"] = handover.seq
    return values | _recompute(handover)


def _recompute(handover: Handover) -> dict[str, object]:
    strategy = handover.strategy
    if strategy.recompute == "selective":
        modules = megatron.recompute_modules(handover)
        return {"recompute_granularity": "selective", "recompute_modules": modules}
    if strategy.recompute == "none":
        return {"recompute_granularity": None}
    layers = strategy.recompute_layers // strategy.vpp
    return {
        "recompute_granularity": "full", "recompute_method": "block" if layers else "uniform",
        "recompute_num_layers": layers or 1,
    }  # fmt: skip


def ddp_values(strategy: Strategy) -> dict[str, object]:
    """Fields of DistributedDataParallelConfig."""
    strategy = canonical(strategy)
    values: dict[str, object] = {
        "use_distributed_optimizer": strategy.zero >= 1,
        "overlap_grad_reduce": strategy.overlap,
        "overlap_param_gather": strategy.overlap and strategy.zero >= 1,
    }
    if strategy.shard:
        values["num_distributed_optimizer_instances"] = megatron.replicas(strategy)
    if strategy.zero in megatron.SHARDED:
        values |= {
            "use_megatron_fsdp": True,
            "data_parallel_sharding_strategy": megatron.SHARDED[strategy.zero],
        }
    return values


def render(handover: Handover, notes: list[str]) -> str:
    """A Python module with the function that sets them."""
    strategy = canonical(handover.strategy)
    lines = [f"    cfg.model.{name} = {value!r}" for name, value in model_values(handover).items()]
    if not strategy.overlap and strategy.vpp > 1:
        lines.append("    cfg.model.overlap_p2p_comm = False")
    lines += [f"    cfg.ddp.{name} = {value!r}" for name, value in ddp_values(strategy).items()]
    lines += [
        f"    cfg.train.micro_batch_size = {strategy.micro_batch!r}",
        f"    cfg.train.global_batch_size = {handover.global_batch!r}",
        f"    cfg.mixed_precision = {_PRECISIONS[strategy.precision]!r}",
    ]
    if strategy.offload == "optimizer":
        lines += ["    cfg.optimizer.optimizer_cpu_offload = True"]
        lines += ["    cfg.optimizer.optimizer_offload_fraction = 1.0"]
    return _MODULE.format(notes=comment(notes), body="\n".join(lines))


_MODULE = '''{notes}

def apply_plan(cfg):
    """Set what the plan says on a recipe's ConfigContainer."""
{body}
    return cfg
'''
