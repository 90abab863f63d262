"""A plan from DeepSpeed's JSON."""

import json
from collections.abc import Mapping
from typing import Any

from trainwright.errors import BadInput
from trainwright.export.canonical import canonical
from trainwright.export.reading.configured import Configured, replicas_of
from trainwright.model.config_fields import Config
from trainwright.plan.strategy import Strategy

# Sections that do not change what a step costs as it is predicted, or that are our own.
_KNOWN = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
    "bf16", "bfloat16", "fp16", "zero_optimization", "tensor_parallel", "expert_parallel", "trainwright",
    "optimizer", "scheduler", "steps_per_print", "wall_clock_breakdown", "tensorboard", "wandb",
    "csv_monitor",
    "prescale_gradients", "dump_state", "zero_allow_untested_optimizer", "communication_data_type",
}  # fmt: skip


def read_deepspeed(text: str, source: str, devices: int | None = None) -> Configured:
    """The plan of DeepSpeed's JSON on so many devices, or on as many as its batch sizes say."""
    config = Config(values=_parse(text, source), source=source)
    zero, tp_part = _section(config, "zero_optimization"), _section(config, "tensor_parallel")
    ep_part = _section(config, "expert_parallel")
    tp = max(tp_part.whole("autotp_size", 1), 1)
    micro, rounds, batch = _batches(config)
    dp = replicas_of(devices, tp, source) if devices else batch // (micro * rounds) if batch else 0
    if dp < 1:
        replicas_of(None, tp, source)  # which says what is missing
    strategy = Strategy(
        dp=dp, tp=tp, ep=ep_part.whole("autoep_size", 1),
        etp=ep_part.whole("expert_tensor_parallel_size", 1), zero=zero.whole("stage", 0),
        shard=max(zero.whole("mics_shard_size", 0), 0), micro_batch=micro,
        offload="optimizer" if _offloads(zero) else "none", precision=_precision(config),
        overlap=zero.flag("overlap_comm", zero.whole("stage", 0) == 3),
    )  # fmt: skip
    total = dp * micro * rounds
    if batch and batch != total:
        rule = f"is not micro batch x accumulation x replicas = {total}"
        raise BadInput(f"{source}: train_batch_size", batch, rule, "correct it, or the count of devices")
    return Configured(
        strategy=canonical(strategy), global_batch=total, stack="megatron-deepspeed",
        notes=tuple(_notes(config, zero)),
    )  # fmt: skip


def _parse(text: str, source: str) -> Mapping[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(source, "text", "is not JSON", "name DeepSpeed's configuration") from None
    if not isinstance(tree, dict):
        raise BadInput(source, "text", "is not a JSON object", "name DeepSpeed's configuration")
    return tree


def _section(config: Config, name: str) -> Config:
    return (
        config.part(name) if config.values.get(name) is not None else Config(values={}, source=config.source)
    )


def _batches(config: Config) -> tuple[int, int, int]:
    """Micro batch, accumulation and whole batch; "auto" is what transformers' Trainer fills in later."""
    names = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
    for name in names:
        if config.values.get(name) == "auto":
            rule = "is filled in by the trainer, so that the batch is not known"
            raise BadInput(f"{config.source}: {name}", "auto", rule, "write the number")
    micro, rounds = config.whole(names[0], 1), config.whole(names[1], 1)
    return max(micro, 1), max(rounds, 1), config.whole(names[2], 0)


def _offloads(zero: Config) -> bool:
    part = zero.values.get("offload_optimizer")
    return isinstance(part, Mapping) and part.get("device") not in (None, "none")


def _precision(config: Config) -> str:
    for name in ("bf16", "bfloat16", "fp16"):
        if _section(config, name).values.get("enabled") is True:
            return "fp16" if name == "fp16" else "bf16"
    return "fp32"


def _notes(config: Config, zero: Config) -> list[str]:
    notes = [f"{name} is not considered." for name in config.values if name not in _KNOWN]
    if zero.values.get("offload_param"):
        notes.append("offload_param is not considered: weights are predicted on the device.")
    if zero.whole("zero_hpz_partition_size", 1) > 1:
        notes.append("zero_hpz_partition_size is not considered: weights are predicted in one partition.")
    return notes
