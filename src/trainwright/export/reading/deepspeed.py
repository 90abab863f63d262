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
    dp = replicas_of(devices, tp, source) if devices else _stated_replicas(config)
    if dp < 1:
        replicas_of(None, tp, source)  # which says what is missing
    micro, rounds = _batches(config, dp)
    strategy = Strategy(
        dp=dp, tp=tp, ep=ep_part.whole("autoep_size", 1),
        etp=ep_part.whole("expert_tensor_parallel_size", 1), zero=zero.whole("stage", 0),
        shard=max(zero.whole("mics_shard_size", 0), 0), micro_batch=micro,
        offload="optimizer" if _offloads(zero) else "none", precision=_precision(config),
        overlap=zero.flag("overlap_comm", zero.whole("stage", 0) == 3),
    )  # fmt: skip
    return Configured(
        strategy=canonical(strategy), global_batch=dp * micro * rounds, stack="megatron-deepspeed",
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


_NAMES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")


def _stated(config: Config) -> tuple[int, int, int]:
    """Micro batch, accumulation and whole batch, 0 if not there."""
    for name in _NAMES:
        _refuse_auto(config, name, "batch")
    micro, rounds, batch = (config.whole(name, 0) for name in _NAMES)
    return micro, rounds, batch


def _refuse_auto(config: Config, name: str, what: str) -> None:
    """Raise for what transformers' Trainer fills in later."""
    if config.values.get(name) == "auto":
        rule = f"is filled in by the trainer, so that the {what} is not known"
        raise BadInput(f"{config.source}: {name}", "auto", rule, "write what it will be")


def _stated_replicas(config: Config) -> int:
    """Replicas that the three sizes of the batch say together; 0 if they do not."""
    micro, rounds, batch = _stated(config)
    return batch // (max(micro, 1) * max(rounds, 1)) if batch else 0


def _batches(config: Config, dp: int) -> tuple[int, int]:
    """Micro batch and accumulation on so many replicas; DeepSpeed works out what is not there as we do."""
    micro, rounds, batch = _stated(config)
    if not (micro or batch):
        rule = "is missing, and train_batch_size too"
        raise BadInput(f"{config.source}: field", _NAMES[0], rule, f"add {_NAMES[0]}")
    if batch and micro and not rounds:
        rounds = batch // (micro * dp)
    elif batch and not micro:
        rounds = rounds or 1
        micro = batch // (dp * rounds)
    micro, rounds = max(micro, 1), max(rounds, 1)
    if batch and batch != dp * micro * rounds:
        rule = f"is not micro batch x accumulation x replicas = {micro} x {rounds} x {dp}"
        raise BadInput(f"{config.source}: {_NAMES[2]}", batch, rule, "correct it, or the count of devices")
    return micro, rounds


def _offloads(zero: Config) -> bool:
    part = zero.values.get("offload_optimizer")
    return isinstance(part, Mapping) and part.get("device") not in (None, "none")


def _precision(config: Config) -> str:
    for name in ("bf16", "bfloat16", "fp16"):
        section = _section(config, name)
        _refuse_auto(section, "enabled", "precision")
        if section.flag("enabled", False):
            return "fp16" if name == "fp16" else "bf16"
    return "fp32"


def _notes(config: Config, zero: Config) -> list[str]:
    notes = [f"{name} is not considered." for name in config.values if name not in _KNOWN]
    if zero.values.get("offload_param"):
        notes.append("offload_param is not considered: weights are predicted on the device.")
    if zero.whole("zero_hpz_partition_size", 1) > 1:
        notes.append("zero_hpz_partition_size is not considered: weights are predicted in one partition.")
    return notes
