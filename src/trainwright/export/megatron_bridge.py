"""A plan as the recipe values of Megatron-Bridge and NeMo: the fields of Megatron-Core's configurations."""

from collections.abc import Iterator

from trainwright.export import megatron
from trainwright.export.canonical import canonical
from trainwright.export.flags import comment
from trainwright.export.handover import Handover
from trainwright.export.stage_layers import has_uneven_stages, relieves_ends, render_layout
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import Strategy

NAME = "Megatron-Bridge"
PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "tensorwise": "bf16_with_fp8_current_scaling_mixed",
    "delayed": "bf16_with_fp8_delayed_scaling_mixed", "mxfp8": "bf16_with_mxfp8_mixed",
    "fp4": "bf16_with_nvfp4_mixed",
}  # fmt: skip
_TORCH = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp8": "torch.uint8"}


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
        **_stages(handover),
        "expert_model_parallel_size": strategy.ep, "expert_tensor_parallel_size": strategy.etp,
    }  # fmt: skip
    if strategy.cp > 1:
        values["cp_comm_type"] = megatron.CP_TYPES[strategy.cp_kind]
    if handover.seq:
        values["seq_length"] = handover.seq
    return values | _sends(strategy) | _recompute(handover) | _construction(handover)


def _construction(handover: Handover) -> dict[str, object]:
    """Where the model is built, and the layers whose activations go to the host."""
    strategy = canonical(handover.strategy)
    values: dict[str, object] = {"cpu_offloading": strategy.offload == "activations"}
    if strategy.offload == "activations":
        values["cpu_offloading_num_layers"] = megatron.offloaded_layers(handover)
    if strategy.zero in megatron.SHARDED:  # or the whole model is built on each device first
        values |= {"init_model_with_meta_device": True, "gradient_accumulation_fusion": False}
    return values


def _stages(handover: Handover) -> dict[str, object]:
    """How layers are cut: in equal chunks, with the ends counted as layers, or by a layout."""
    strategy, uneven = canonical(handover.strategy), has_uneven_stages(handover)
    ends = uneven and relieves_ends(handover)
    return {
        "pipeline_model_parallel_layout": render_layout(handover) if uneven and not ends else None,
        "virtual_pipeline_model_parallel_size": strategy.vpp if strategy.vpp > 1 else None,
        "account_for_embedding_in_pipeline_split": ends,
        "account_for_loss_in_pipeline_split": ends,
    }


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
    if labels := megatron.recompute_labels(strategy):
        return values | {"recompute_granularity": "selective", "recompute_modules": labels}
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
        "fsdp_double_buffer": strategy.zero in megatron.SHARDED,  # two buffers of weights and gradients
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
        *_set("cfg.optimizer", optimizer_values(strategy)), *_optimizer(handover),
        f"cfg.dist.use_tp_pp_dp_mapping = {strategy.order != ORDERS[0]}",
        f"cfg.dist.use_megatron_fsdp = {strategy.zero in megatron.SHARDED}",
        f"cfg.train.micro_batch_size = {strategy.micro_batch}",
        f"cfg.train.global_batch_size = {handover.global_batch}",
        *([f"cfg.dataset.seq_length = {handover.seq}"] if handover.seq else []),
        *(['cfg.checkpoint.ckpt_format = "fsdp_dtensor"'] if strategy.zero in megatron.SHARDED else []),
        *_precision(handover),
        'if hasattr(cfg, "env_vars"):  # else export them before the launch',
        *(f"    cfg.env_vars[{name!r}] = {text!r}" for name, text in megatron.environment(strategy).items()),
        "if cfg.comm_overlap is not None:  # which has the last word on overlap",
        *(f"    {line}" for line in _set("cfg.comm_overlap", overlap_values(strategy))),
    ]  # fmt: skip
    body = "\n".join(f"    {line}" for line in lines)
    imports = [line for name, line in _IMPORTS.items() if name in body]
    head = "\n".join(imports) + "\n\n\n" if imports else "\n"
    return _MODULE.format(notes=comment(notes), head=head, body=body)


def _set(section: str, values: dict[str, object]) -> list[str]:
    return [f"{section}.{name} = {value!r}" for name, value in values.items()]


def _optimizer(handover: Handover) -> list[str]:
    """Fields of OptimizerConfig and of Megatron-FSDP for what is stated of the optimizer."""
    lines, grads = [], _TORCH[handover.grad_dtype or "fp32"]
    if handover.optimizer:
        lines = [
            f"cfg.optimizer.optimizer = {megatron.optimizer_name(handover.optimizer)!r}",
            f"cfg.optimizer.use_precision_aware_optimizer = {megatron.is_precision_aware(handover)}",
        ]
    if megatron.is_precision_aware(handover):
        dtype = _TORCH[megatron.moment_dtype(handover.optimizer)]
        lines += [f"cfg.optimizer.exp_avg_dtype = cfg.optimizer.exp_avg_sq_dtype = {dtype}"]
        lines += [f"cfg.optimizer.main_grads_dtype = {grads}"]
    if canonical(handover.strategy).zero in megatron.SHARDED:
        lines += [f"cfg.ddp.megatron_fsdp_main_grads_dtype = {grads}"]
        lines += [f"cfg.ddp.megatron_fsdp_grad_comm_dtype = {grads}"] if handover.grad_dtype else []
    return lines


def _precision(handover: Handover) -> list[str]:
    """Mixed precision by the name of its recipe; there is none for single precision throughout.

    The recipe's values override those of the optimizer and of data parallelism.
    """
    strategy = handover.strategy
    if strategy.precision != "fp32":
        recipe = megatron.fp8_recipe(handover) if strategy.precision == "fp8" else strategy.precision
        changed = _recipe_changes(handover, recipe)
        if not changed:
            return [f"cfg.mixed_precision = {PRECISIONS[recipe]!r}"]
        return [
            f"cfg.mixed_precision = get_mixed_precision_config({PRECISIONS[recipe]!r})",
            *_set("cfg.mixed_precision", changed),
        ]
    return [
        "cfg.mixed_precision = None",
        "for part in (cfg.model, cfg.optimizer):",
        "    part.bf16, part.fp16, part.params_dtype = False, False, torch.float32",
        "cfg.model.pipeline_dtype, cfg.model.autocast_dtype = torch.float32, torch.float32",
    ]


def _recipe_changes(handover: Handover, recipe: str) -> dict[str, object]:
    """Fields of MixedPrecisionConfig that differ from the recipe, or that the plan depends on."""
    changed: dict[str, object] = {}
    precision = handover.strategy.precision
    if handover.grad_dtype:
        changed["grad_reduce_in_fp32"] = handover.grad_dtype == "fp32"
    if precision in ("fp8", "fp4"):
        changed[f"{precision}_param_gather"] = megatron.keeps_low_weights(handover.strategy)
    if recipe == "mxfp8":
        changed["reuse_grad_buf_for_mxfp8_param_ag"] = megatron.keeps_low_weights(handover.strategy)
    return changed


_IMPORTS = {
    "torch.": "import torch",
    "get_mixed_precision_config": "from megatron.bridge.training.mixed_precision import "
    "get_mixed_precision_config",
}
_MODULE = '''{notes}{head}
def apply_plan(cfg):
    """Set what the plan says on a recipe's ConfigContainer."""
{body}
    return cfg
'''
