"""A plan from a configuration of Hugging Face accelerate."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.export.accelerate import MIXED, ROTATE
from trainwright.export.canonical import canonical
from trainwright.export.reading.configured import Configured, StatedSettings, check_positive, replicas_of
from trainwright.export.reading.known_settings import load_known, named_optimizer, optimizer_note
from trainwright.export.reading.yaml_text import check_names, flatten, matter_notes
from trainwright.model.config_fields import Config
from trainwright.plan.strategy import Strategy

_KINDS = ("NO", "MULTI_GPU", "FSDP", "DEEPSPEED")
# What FSDP's first version calls its ways to shard, and the numbers that stand for them.
_STRATEGIES = {
    "FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2,
}  # fmt: skip
_PREFIX = "parallelism_config_"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sharding:
    """How data parallelism is made: replicas and shards of each, and what they hold."""

    copies: int
    shards: int
    tp: int = 1
    cp: int = 1
    cp_kind: str = "ring"
    zero: int = 0
    recompute: str = "none"
    offload: str = "none"
    rounds: int = 0  # accumulation steps, if the file states them


def read_accelerate(tree: Mapping[str, Any], text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of a configuration; batches are the training script's, or on a launch line in a comment."""
    known, values = load_known("accelerate"), flatten(tree, source)
    check_names(known, values, source, model_stated=stated.architecture is not None)
    config = Config(values=tree, source=source)
    kind = config.word("distributed_type", "NO")
    if kind not in _KINDS:
        raise UnknownName(f"{source}: distributed_type", kind, _KINDS)
    devices = stated.devices or config.whole("num_processes")
    sharding = _deepspeed(config, devices) if kind == "DEEPSPEED" else _fsdp(config, kind, devices)
    micro, rounds, notes = _batch(text, source, stated, sharding.rounds)
    dp = sharding.copies * sharding.shards
    zero = sharding.zero if sharding.shards * sharding.cp > 1 else 0
    strategy = Strategy(
        dp=dp, tp=sharding.tp, cp=sharding.cp, cp_kind=sharding.cp_kind, zero=zero,
        shard=sharding.shards * sharding.cp if zero else 0, micro_batch=micro, recompute=sharding.recompute,
        offload=sharding.offload, precision=stated.precision or _precision(config),
    )  # fmt: skip
    stack, optim = "deepspeed" if kind == "DEEPSPEED" else "accelerate", _launched(text, "optim")
    return Configured(
        strategy=canonical(strategy), global_batch=stated.global_batch or dp * micro * rounds,
        stack=stack,
        optimizer=named_optimizer(optim, stack),
        notes=(
            *matter_notes(known, values), *notes, *optimizer_note(optim, stack),
            *_notes(config, kind, devices),
        ),
    )  # fmt: skip


def _fsdp(config: Config, kind: str, devices: int) -> _Sharding:
    parallel, fsdp = _section(config, "parallelism_config"), _section(config, "fsdp_config")
    tp, cp = parallel.whole(f"{_PREFIX}tp_size", 1), parallel.whole(f"{_PREFIX}cp_size", 1)
    copies = parallel.whole(f"{_PREFIX}dp_replicate_size", 1)
    ranks = replicas_of(devices, tp * cp, config.source)
    shards = parallel.whole(f"{_PREFIX}dp_shard_size", 0 if parallel.values else -1)
    if shards < -1 or (shards == 0 and f"{_PREFIX}dp_shard_size" in parallel.values):
        check_positive(shards, f"{config.source}: dp_shard_size")
    zero, hybrid = _zero(fsdp) if kind == "FSDP" else (0, False)
    if kind != "FSDP" or zero == 0:
        return _Sharding(copies=ranks, shards=1, tp=tp, cp=cp)
    if hybrid and not parallel.values:
        rule = "shards within each host, and how many devices a host has is not in it"
        thing = f"{config.source}: fsdp_sharding_strategy"
        raise BadInput(thing, "HYBRID_SHARD", rule, "state parallelism_config_dp_shard_size")
    if shards < 1:
        shards = replicas_of(ranks, copies, config.source)
    if copies * shards * tp * cp != devices:
        rule = f"is not the product of its sizes, {copies * shards * tp * cp}"
        raise BadInput(f"{config.source}: devices", devices, rule, "name a cluster of as many")
    return _Sharding(
        copies=copies, shards=shards, tp=tp, cp=cp, zero=zero,
        cp_kind=_cp_kind(parallel) if cp > 1 else "ring",
        recompute="full" if fsdp.flag("fsdp_activation_checkpointing", False) else "none",
    )  # fmt: skip


def _zero(fsdp: Config) -> tuple[int, bool]:
    """The ZeRO stage, and whether shards stay within a host by the name of the strategy."""
    if fsdp.whole("fsdp_version", 1) == 2:
        value = fsdp.values.get("fsdp_reshard_after_forward", True)
        return (2 if value is False else 3), False
    value = fsdp.values.get(
        "fsdp_sharding_strategy", fsdp.values.get("fsdp_reshard_after_forward", "FULL_SHARD")
    )
    name = [*_STRATEGIES][int(value) - 1] if str(value) in "12345" and str(value) else str(value).upper()
    if name not in _STRATEGIES:
        raise UnknownName(f"{fsdp.source}: fsdp_sharding_strategy", name, _STRATEGIES)
    return _STRATEGIES[name], name.startswith("HYBRID")


def _cp_kind(parallel: Config) -> str:
    name = parallel.word(f"{_PREFIX}cp_comm_strategy", "allgather")
    known = {theirs: ours for ours, theirs in ROTATE.items()}
    if name not in known:
        raise UnknownName(f"{parallel.source}: cp_comm_strategy", name, known)
    return known[name]


def _deepspeed(config: Config, devices: int) -> _Sharding:
    section = _section(config, "deepspeed_config")
    if section.values.get("deepspeed_config_file"):
        rule = "holds the settings, which are not in the text"
        name = f"{config.source}: deepspeed_config_file"
        raise BadInput(name, str(section.values["deepspeed_config_file"]), rule, "name that file")
    offloads = section.word("offload_optimizer_device", "none") != "none"
    return _Sharding(
        copies=1, shards=devices, zero=section.whole("zero_stage", 2),
        offload="optimizer" if offloads else "none", rounds=section.whole("gradient_accumulation_steps", 1),
    )  # fmt: skip


def _batch(text: str, source: str, stated: StatedSettings, rounds: int) -> tuple[int, int, tuple[str, ...]]:
    """Micro batch and accumulation steps: as the user states, or on the launch line in a comment."""
    micro = stated.micro_batch or int(_launched(text, "per_device_train_batch_size", r"\d{1,9}") or 0)
    if not micro:
        rule = "is the training script's, and not in the text"
        raise BadInput(f"{source}: micro batch", "", rule, "state --micro-batch N (and --batch N)")
    steps = rounds or int(_launched(text, "gradient_accumulation_steps", r"\d{1,9}") or 0)
    if stated.micro_batch or stated.global_batch:
        return micro, steps or 1, ()
    note = () if steps else ("Accumulation steps are the training script's: 1 is assumed (see --batch).",)
    return micro, steps or 1, note


def _launched(text: str, name: str, form: str = r"[\w.]+") -> str:
    """What follows an argument of the launch line that a comment shows; nothing without one."""
    for line in text.splitlines():
        found = re.search(rf"--{name}[ =]({form})\b", line) if line.lstrip().startswith("#") else None
        if found:
            return found[1]
    return ""


def _precision(config: Config) -> str:
    value = config.values.get("mixed_precision", "no")
    name = "no" if value is False else str(value)  # YAML reads a bare no as false
    known = {theirs: ours for ours, theirs in MIXED.items()}
    if name not in known:
        raise UnknownName(f"{config.source}: mixed_precision", name, known)
    return known[name]


def _notes(config: Config, kind: str, devices: int) -> Iterator[str]:
    fsdp = _section(config, "fsdp_config")
    if kind == "FSDP" and fsdp.word("fsdp_auto_wrap_policy", "NO_WRAP") == "NO_WRAP":
        yield "Not considered, and it matters: without a wrap policy the whole model is gathered at once."
    processes = config.values.get("num_processes")
    if isinstance(processes, int) and processes != devices:
        note = f"The text launches {processes} processes"
        yield f"{note}; the plan is for the {devices} devices of the cluster."


def _section(config: Config, name: str) -> Config:
    if config.values.get(name) is None:
        return Config(values={}, source=config.source)
    return config.part(name)
