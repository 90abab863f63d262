"""A plan from DeepSpeed's JSON."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.errors import BadInput
from trainwright.export.canonical import canonical
from trainwright.export.reading.configured import Configured, StatedSettings, check_positive, replicas_of
from trainwright.export.reading.known_settings import (
    load_known,
    named_optimizer,
    not_considered,
    optimizer_note,
)
from trainwright.model.config_fields import Config
from trainwright.plan.strategy import Strategy
from trainwright.stack.optimizer import GRADIENT_BYTES

_OFF = (None, False, 0, 0.0, "none", "", "auto")
_REFUSED = {
    "parallelism": (
        "splits the job or its batch in a way that is not read",
        "describe the plan as a strategy",
    ),
    "job": ("belongs to another job than pretraining", "name a configuration of pretraining"),
}


def read_deepspeed(text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of DeepSpeed's JSON on so many devices, or on as many as its batch sizes say."""
    config = Config(values=_with_stated(parse_json(text, source), stated), source=source)
    on = [name for name, value in _flattened(config.values) if not _is_off(name, value)]
    _check_scope(on, source)
    zero, tp_part = _section(config, "zero_optimization"), _section(config, "tensor_parallel")
    ep_part = _section(config, "expert_parallel")
    _refuse_auto(tp_part, "autotp_size", "tensor parallelism", "write what it will be")
    tp = max(tp_part.whole("autotp_size", 1), 1)
    dp = replicas_of(stated.devices, tp, source) if stated.devices else _stated_replicas(config)
    if dp < 1:
        replicas_of(None, tp, source)  # which says what is missing
    micro, rounds = _batches(config, dp)
    _refuse_auto(zero, "stage", "ZeRO stage", "write what it will be")
    stage = zero.whole("stage", 0)
    strategy = Strategy(
        dp=dp, tp=tp, ep=ep_part.whole("autoep_size", 1),
        etp=ep_part.whole("expert_tensor_parallel_size", 1), zero=stage,
        shard=max(zero.whole("mics_shard_size", 0), 0), micro_batch=micro,
        offload="optimizer" if _offloads(zero) else "none", precision=stated.precision or _precision(config),
        overlap=_overlaps(zero, stage), recompute=_recompute(config),
    )  # fmt: skip
    known = load_known("deepspeed")
    return Configured(
        strategy=canonical(strategy), global_batch=dp * micro * rounds, stack="deepspeed",
        optimizer=named_optimizer(_optimizer(config), "deepspeed"), grad_dtype=_grad_dtype(config),
        notes=(*not_considered(known, on), *optimizer_note(_optimizer(config), "deepspeed"), *_notes(config)),
    )  # fmt: skip


def parse_json(text: str, source: str) -> Mapping[str, Any]:
    """The object of a JSON text."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(source, "text", "is not JSON", "name DeepSpeed's configuration") from None
    if not isinstance(tree, dict):
        raise BadInput(source, "text", "is not a JSON object", "name DeepSpeed's configuration")
    return tree


def _with_stated(values: Mapping[str, Any], stated: StatedSettings) -> Mapping[str, Any]:
    """The settings with the batch that the user states; what follows from it is left to be derived."""
    changed: dict[str, Any] = {}
    if stated.micro_batch:
        changed[_NAMES[0]] = stated.micro_batch
    if stated.global_batch:
        changed[_NAMES[2]] = stated.global_batch
    if not changed:
        return values
    open_names = [name for name in _NAMES if values.get(name) == "auto" and name not in changed]
    return {**values, **dict.fromkeys(open_names), **changed, _NAMES[1]: _rounds(values, stated)}


def _rounds(values: Mapping[str, Any], stated: StatedSettings) -> object:
    """Accumulation steps, where the micro batch and the whole batch do not decide them."""
    rounds, whole = values.get(_NAMES[1]), stated.global_batch or values.get(_NAMES[2])
    is_derived = stated.global_batch or (stated.devices and isinstance(whole, int))
    return None if is_derived or rounds == "auto" else rounds


def _flattened(values: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Settings by dotted names; a section that is not enabled has none."""
    for name, value in values.items():
        if not isinstance(value, Mapping):
            yield name, tuple(value) if isinstance(value, list) else value
        elif value.get("enabled") is not False:
            for key, each in value.items():
                yield (
                    f"{name}.{key}",
                    str(each) if isinstance(each, Mapping | list) and each else each or None,
                )


def _is_off(name: str, value: object) -> bool:
    """Whether a setting says what holds without it."""
    return value in _OFF or (value == 1 and name.endswith("_size"))


def _check_scope(names: list[str], source: str) -> None:
    for name in names:
        kind = load_known("deepspeed").class_of(name)
        if kind in _REFUSED:
            rule, remedy = _REFUSED[kind]
            raise BadInput(f"{source}: setting", name, rule, remedy)


def _section(config: Config, name: str) -> Config:
    return (
        config.part(name) if config.values.get(name) is not None else Config(values={}, source=config.source)
    )


_NAMES = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size")
_REMEDIES = dict(
    zip(
        _NAMES,
        ("state --micro-batch N", "state --batch N and --micro-batch N", "state --batch N"),
        strict=True,
    )
)


def _stated(config: Config) -> tuple[int, int, int]:
    """Micro batch, accumulation and whole batch, 0 if not there."""
    for name in _NAMES:
        _refuse_auto(config, name, "batch", _REMEDIES[name])
    micro, rounds, batch = (config.whole(name, 0) for name in _NAMES)
    for name, value in zip(_NAMES, (micro, rounds, batch), strict=True):
        if value < 0:
            check_positive(value, f"{config.source}: {name}")
    return micro, rounds, batch


def _refuse_auto(config: Config, name: str, what: str, remedy: str) -> None:
    """Raise for what transformers' Trainer fills in later."""
    if config.values.get(name) == "auto":
        rule = f"is filled in by the trainer, so that the {what} is not known"
        raise BadInput(f"{config.source}: {name}", "auto", rule, remedy)


def _stated_replicas(config: Config) -> int:
    """Replicas that the three sizes of the batch say together; 0 if they do not."""
    micro, rounds, batch = _stated(config)
    return batch // (max(micro, 1) * max(rounds, 1)) if batch else 0


def _batches(config: Config, dp: int) -> tuple[int, int]:
    """Micro batch and accumulation on so many replicas; DeepSpeed works out what is not there as we do."""
    micro, rounds, batch = _stated(config)
    if not (micro or batch):
        rule = "is missing, and train_batch_size too"
        raise BadInput(
            f"{config.source}: field", _NAMES[0], rule, f"add {_NAMES[0]}, or state --micro-batch N"
        )
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
    if zero.values.get("cpu_offload") is True:  # of older releases
        return True
    return isinstance(part, Mapping) and part.get("device") not in (None, "none")


def _overlaps(zero: Config, stage: int) -> bool:
    if zero.values.get("overlap_comm") == "auto":
        return stage == 3
    return zero.flag("overlap_comm", stage == 3)


def _precision(config: Config) -> str:
    for name in ("bf16", "bfloat16", "fp16", "torch_autocast"):
        section = _section(config, name)
        _refuse_auto(section, "enabled", "precision", "state --precision bf16 or fp16")
        if section.flag("enabled", False):
            half = name == "fp16" or section.values.get("dtype") in ("fp16", "float16", "half")
            return "fp16" if half else "bf16"
    return "fp32"


def _recompute(config: Config) -> str:
    """A section for checkpoints of activations is there for a model that makes them, layer by layer."""
    return "full" if isinstance(config.values.get("activation_checkpointing"), Mapping) else "none"


def _optimizer(config: Config) -> str:
    return _section(config, "optimizer").word("type", "")


def _grad_dtype(config: Config) -> str:
    """The dtype in which gradients accumulate, if it is stated."""
    name = _section(config, "data_types").values.get("grad_accum_dtype")
    return str(name) if name in GRADIENT_BYTES else ""


def _notes(config: Config) -> Iterator[str]:
    """What to say of dtypes and of momentum that are predicted otherwise."""
    sent, kept = config.values.get("communication_data_type"), _grad_dtype(config)
    if sent is not None and sent != kept:
        yield f"Not considered, and it matters: communication_data_type {sent}."
    params = _section(config, "optimizer").values.get("params")
    momentum = params.get("momentum") if isinstance(params, Mapping) else None
    if _optimizer(config).lower() == "sgd" and not momentum:
        yield "Not considered, and it matters: SGD without momentum, 4 bytes per parameter less."
