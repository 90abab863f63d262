"""A plan from torchtitan's configuration: TOML, the Python function of 0.3, or flags."""

import ast
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from trainwright.errors import BadInput, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.reading.configured import Configured, replicas_of
from trainwright.export.reading.words import parse_flags
from trainwright.export.torchtitan import MODELS, SCHEDULES
from trainwright.export.torchtitan_toml import MODELS as TOML_MODELS
from trainwright.export.torchtitan_toml import ROTATE
from trainwright.model.config_fields import Config
from trainwright.model.load import load_entry
from trainwright.plan.strategy import Strategy

_POLICIES = {"SelectiveAC": "selective", "FullAC": "full", "None": "none"}
_SECTIONS = {"ParallelismConfig": "parallelism", "TrainingConfig": "training"}
_CONSIDERED = {
    "context_parallel_degree", "context_parallel_rotate_method", "data_parallel_replicate_degree",
    "data_parallel_shard_degree", "enable_sequence_parallel", "expert_parallel_degree",
    "expert_tensor_parallel_degree", "fsdp_reshard_after_forward", "pipeline_parallel_degree",
    "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers",
    "pipeline_parallel_layers_per_stage", "pipeline_parallel_microbatch_size", "pipeline_parallel_schedule",
    "tensor_parallel_degree",
}  # fmt: skip
_LONG = {"seq_len": 2048, "local_batch_size": 8}  # torchtitan's own defaults


def read_torchtitan(text: str, source: str, devices: int | None = None) -> Configured:
    """The plan of a configuration; on so many devices if its sharding degree is left open."""
    tables = _tables(text, source)
    for name in ("parallelism", "training", "model", "activation_checkpoint"):
        if not isinstance(tables.get(name, {}), Mapping):
            rule = "must be a table of settings"
            raise BadInput(f"{source}: {name}", str(tables[name])[:80], rule, "correct it")
    parallel = Config(values=tables.get("parallelism", {}), source=f"{source}: parallelism")
    training = Config(values=tables.get("training", {}), source=f"{source}: training")
    if not parallel.values and not training.values:
        raise BadInput(source, "settings", "has none of torchtitan's", "name its configuration")
    model = _model(tables)
    strategy = canonical(_strategy(tables, parallel, training, devices, model))
    batch, notes = _batch(strategy, training)
    notes += tuple(
        f"parallelism.{name} is not considered." for name in parallel.values if name not in _CONSIDERED
    )
    return Configured(
        strategy=strategy, global_batch=batch, stack="torchtitan", model=model,
        seq=training.whole("seq_len", _LONG["seq_len"]), notes=notes,
    )  # fmt: skip


def _strategy(
    tables: Mapping[str, Any], parallel: Config, training: Config, devices: int | None, model: str | None
) -> Strategy:
    tp, pp = parallel.whole("tensor_parallel_degree", 1), parallel.whole("pipeline_parallel_degree", 1)
    cp = parallel.whole("context_parallel_degree", 1)
    copies, shards = (
        parallel.whole("data_parallel_replicate_degree", 1),
        parallel.whole("data_parallel_shard_degree", -1),
    )
    if shards < 1:
        shards = replicas_of(devices, tp * cp * pp * copies, parallel.source)
    schedule = _schedule(parallel) if pp > 1 else "1f1b"
    micro = (
        parallel.whole("pipeline_parallel_microbatch_size", 1)
        if pp > 1
        else training.whole("local_batch_size", _LONG["local_batch_size"])
    )
    zero = _zero(parallel, pp) if shards * cp > 1 else 0
    return Strategy(
        dp=copies * shards, tp=tp, cp=cp, pp=pp, sp=parallel.flag("enable_sequence_parallel", True),
        vpp=_chunks(parallel, pp, model) if schedule == "interleaved" else 1, schedule=schedule,
        cp_kind=_cp_kind(parallel) if cp > 1 else "ring",
        ep=parallel.whole("expert_parallel_degree", 1),
        etp=parallel.whole("expert_tensor_parallel_degree", 1), zero=zero, shard=shards * cp if zero else 0,
        micro_batch=micro, recompute=_recompute(tables), precision=_precision(tables, training),
    )  # fmt: skip


def _batch(strategy: Strategy, training: Config) -> tuple[int, tuple[str, ...]]:
    local = training.whole("local_batch_size", _LONG["local_batch_size"])
    batch = training.whole("global_batch_size", -1)
    if batch < 1:
        batch = local * strategy.dp
    notes: tuple[str, ...] = ()
    if strategy.pp > 1 and batch > local * strategy.dp:
        rounds = batch // (local * strategy.dp)
        notes = (
            f"Each step runs the pipeline {rounds} times; it is predicted as one run, with less bubble.",
        )
    return batch, notes


def _schedule(parallel: Config) -> str:
    name = parallel.word("pipeline_parallel_schedule", "1F1B")
    known = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()}
    if name.lower() not in known:
        raise UnknownName(f"{parallel.source}: pipeline_parallel_schedule", name, SCHEDULES.values())
    return known[name.lower()]


def _chunks(parallel: Config, pp: int, model: str | None) -> int:
    """Chunks of a stage: 2, unless the layers of each are stated."""
    each = parallel.whole("pipeline_parallel_layers_per_stage", 0)
    if not each:
        return 2
    layers = load_entry(model).architecture.layers if model else 0
    less = sum(parallel.whole(f"pipeline_parallel_{end}_stage_less_layers", 1) for end in ("first", "last"))
    stages = -(-(layers + less) // each)
    if not layers or stages % pp:
        rule = f"gives {stages} stages, which pp = {pp} does not divide, or the model is not known"
        raise BadInput(f"{parallel.source}: pipeline_parallel_layers_per_stage", each, rule, "correct it")
    return stages // pp


def _cp_kind(parallel: Config) -> str:
    name = parallel.word("context_parallel_rotate_method", "allgather")
    known = {theirs: ours for ours, theirs in ROTATE.items()}
    if name not in known:
        raise UnknownName(f"{parallel.source}: context_parallel_rotate_method", name, known)
    return known[name]


def _zero(parallel: Config, pp: int) -> int:
    """Weights gathered for the forward stay or go; by default they stay under a pipeline only."""
    policy = parallel.word("fsdp_reshard_after_forward", "default")
    known = {"always": 3, "never": 2, "default": 2 if pp > 1 else 3}
    if policy not in known:
        raise UnknownName(f"{parallel.source}: fsdp_reshard_after_forward", policy, known)
    return known[policy]


def _recompute(tables: Mapping[str, Any]) -> str:
    mode = tables.get("activation_checkpoint", {}).get("mode", "selective")
    if mode not in ("none", "selective", "full"):
        raise UnknownName("activation_checkpoint mode", str(mode), ("none", "selective", "full"))
    return str(mode)


def _precision(tables: Mapping[str, Any], training: Config) -> str:
    converters = tables.get("model", {}).get("converters", ())
    if any("float8" in str(each) for each in converters):
        return "fp8"
    return "fp32" if training.word("mixed_precision_param", "bfloat16") == "float32" else "bf16"


def _model(tables: Mapping[str, Any]) -> str | None:
    """The catalog's name of the model."""
    stated = tables.get("model", {})
    for name, (_, function, _) in MODELS.items():
        if stated.get("function") == function:
            return name
    pair = (stated.get("name"), stated.get("flavor"))
    return next((name for name, known in TOML_MODELS.items() if known == pair), None)


def _tables(text: str, source: str) -> dict[str, Any]:
    """Settings by section, whichever form they are in."""
    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as toml:
        if "def " in text and "config" in text.lower():
            return _python(text, source)
        if "--parallelism." in text or "--training." in text:
            return _flags(text, source)
        raise BadInput(source, "text", f"is not TOML ({toml})", "name torchtitan's configuration") from None


def _flags(text: str, source: str) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for name, words in parse_flags(text, source).values.items():
        section, _, field = name.replace("-", "_").rpartition(".")
        if section and len(words) == 1:
            tables.setdefault(section, {})[field] = _literal(words[0])
        elif name == "config" and words:
            tables.setdefault("model", {})["function"] = words[0]
    return tables


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _python(text: str, source: str) -> dict[str, Any]:
    """Settings of a function that builds a configuration; it is read, not run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        raise BadInput(source, "text", "is no Python", "name torchtitan's configuration") from None
    tables: dict[str, Any] = {}
    for node in ast.walk(tree):
        for section, field, value in _settings(node):
            tables.setdefault(section, {})[field] = value
    return tables


def _settings(node: ast.AST) -> Iterator[tuple[str, str, object]]:
    """What a statement or a call of a function's body says."""
    match node:
        case ast.Assign(targets=[ast.Attribute(value=ast.Attribute(attr=section), attr=field)], value=value):
            if isinstance(value, ast.Constant | ast.UnaryOp):
                yield section, field, ast.literal_eval(value)
        case ast.Assign(targets=[ast.Attribute(attr="activation_checkpoint")], value=value):
            yield "activation_checkpoint", "mode", _policy(value)
        case ast.Assign(targets=[ast.Name(id="config")], value=ast.Call(func=ast.Name(id=function))):
            yield "model", "function", function
        case ast.keyword(arg="activation_checkpoint", value=value):
            yield "activation_checkpoint", "mode", _policy(value)
        case ast.Call(func=ast.Name(id=name), keywords=keywords) if name in _SECTIONS:
            for each in keywords:
                if each.arg and isinstance(each.value, ast.Constant | ast.UnaryOp):
                    yield _SECTIONS[name], each.arg, ast.literal_eval(each.value)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="Float8LinearConverter"))):
            yield "model", "converters", ["float8"]


def _policy(value: ast.expr) -> str:
    text = ast.unparse(value)
    return next((ours for theirs, ours in _POLICIES.items() if text.startswith(theirs)), text)
