"""A plan from torchtitan's configuration: TOML, a Python function, or flags."""

from collections.abc import Iterator

from trainwright.errors import BadInput, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.reading.configured import Configured, StatedSettings, replicas_of
from trainwright.export.reading.known_settings import named_optimizer, optimizer_note
from trainwright.export.reading.megatron_stages import layer_notes
from trainwright.export.reading.torchtitan_batch import TitanBatch, read_batch
from trainwright.export.reading.torchtitan_settings import TitanSettings, read_settings
from trainwright.export.torchtitan import BF16_MOMENTS, MODELS, SCHEDULES
from trainwright.export.torchtitan_toml import MODELS as TOML_MODELS
from trainwright.export.torchtitan_toml import ROTATE
from trainwright.model.config_fields import Config
from trainwright.model.load import load_entry
from trainwright.plan.recompute_policies import SELECTIVE_AC
from trainwright.plan.strategy import Strategy

_OLDER_SCHEDULES = {"interleaved_1f1b": "interleaved", "flexible_interleaved_1f1b": "interleaved"}


def read_torchtitan(text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of a configuration; on so many devices if its sharding degree is left open."""
    settings = read_settings(text, source, stated)
    parallel = Config(values=settings.section("parallelism"), source=f"{source}: parallelism")
    training = Config(values=settings.section("training"), source=f"{source}: training")
    if not parallel.values and not training.values:
        raise BadInput(source, "settings", "has none of torchtitan's", "name its configuration")
    model = _model(settings)
    layers = _layers(stated, model)
    pp = parallel.whole("pipeline_parallel_degree", 1)
    batch = read_batch(settings, parallel, training, stated)
    strategy = canonical(_strategy(settings, parallel, stated, batch, layers))
    total = batch.total(strategy.dp)
    if strategy.pp > 1 and total % (batch.local_batch * strategy.dp) and not stated.micro_batch:
        rule = f"does not divide by local_batch_size x replicas = {batch.local_batch} x {strategy.dp}"
        raise BadInput(f"{source}: training.global_batch_size", total, rule, "correct one of them")
    return Configured(
        strategy=strategy, global_batch=total, model=model, seq=batch.seq,
        stack="torchtitan@0.2.2" if settings.form == "toml" else "torchtitan",
        optimizer=_optimizer(settings),
        notes=(
            *settings.notes, *_precision_notes(settings),
            *optimizer_note(_optimizer_name(settings), "torchtitan"),
            *batch.notes, *_rounds(batch, strategy, total), *_base_notes(settings, pp),
            *_listed_notes(parallel, strategy),
        ),
    )  # fmt: skip


def _strategy(
    settings: TitanSettings, parallel: Config, stated: StatedSettings, batch: TitanBatch, layers: int
) -> Strategy:
    tp, pp = parallel.whole("tensor_parallel_degree", 1), parallel.whole("pipeline_parallel_degree", 1)
    cp = parallel.whole("context_parallel_degree", 1)
    copies, shards = (
        parallel.whole("data_parallel_replicate_degree", 1),
        parallel.whole("data_parallel_shard_degree", -1),
    )
    if shards < 1:
        shards = replicas_of(stated.devices, tp * cp * pp * copies, parallel.source)
    schedule = _schedule(parallel) if pp > 1 else "1f1b"
    zero = _zero(parallel, pp) if shards * cp > 1 else 0
    recompute, whole = _recompute(settings, layers, pp)
    return Strategy(
        dp=copies * shards, tp=tp, cp=cp, pp=pp, sp=parallel.flag("enable_sequence_parallel", True),
        vpp=_chunks(parallel, pp, layers, schedule), schedule=schedule,
        cp_kind=_cp_kind(parallel) if cp > 1 else "ring",
        ep=parallel.whole("expert_parallel_degree", 1),
        etp=parallel.whole("expert_tensor_parallel_degree", 1), zero=zero, shard=shards * cp if zero else 0,
        micro_batch=batch.micro_batch, recompute=recompute, recompute_layers=whole,
        precision=stated.precision or _precision(settings),
    )  # fmt: skip


def _rounds(batch: TitanBatch, strategy: Strategy, total: int) -> Iterator[str]:
    each = batch.local_batch * strategy.dp
    if strategy.pp > 1 and total > each:
        rounds = total // each
        yield f"Each step runs the pipeline {rounds} times; it is predicted as one run, with less bubble."


def _layers(stated: StatedSettings, model: str | None) -> int:
    """Layers of the model, 0 if it is not known."""
    if stated.architecture:
        return stated.architecture.layers
    return load_entry(model).architecture.layers if model else 0


def _schedule(parallel: Config) -> str:
    name = parallel.word("pipeline_parallel_schedule", "1F1B")
    known = {theirs.lower(): ours for ours, theirs in SCHEDULES.items()} | _OLDER_SCHEDULES
    if name.lower() not in known:
        raise UnknownName(f"{parallel.source}: pipeline_parallel_schedule", name, SCHEDULES.values())
    return known[name.lower()]


def _listed_layers(parallel: Config) -> tuple[int, ...]:
    """Layers of each chunk, in the order of the model, where the modules of each are listed."""
    listed = parallel.values.get("module_fqns_per_model_part")
    if not listed:
        return ()
    if not isinstance(listed, list) or not all(isinstance(each, list) for each in listed):
        raise BadInput(
            f"{parallel.source}: module_fqns_per_model_part",
            "",
            "must be lists of module names",
            "correct it",
        )
    return tuple(sum(str(name).startswith("layers.") for name in each) for each in listed)


def _listed_notes(parallel: Config, strategy: Strategy) -> Iterator[str]:
    listed = _listed_layers(parallel)
    if strategy.pp > 1 and any(listed):
        yield from layer_notes(listed, strategy.pp, strategy.vpp, "list of modules")


def _chunks(parallel: Config, pp: int, layers: int, schedule: str) -> int:
    """Chunks of a stage: as listed, else 1, or 2 if interleaved unless the layers of each are stated."""
    listed = len(_listed_layers(parallel)) if pp > 1 else 0
    if listed:
        single = schedule != "interleaved"
        if listed % pp or (single and listed != pp):
            rule = f"has {listed} parts, which {schedule} on {pp} stages cannot have"
            raise BadInput(f"{parallel.source}: module_fqns_per_model_part", "", rule, "correct it")
        return listed // pp
    if schedule != "interleaved":
        return 1
    each = parallel.whole("pipeline_parallel_layers_per_stage", 0)
    if not each:
        return 2
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


def _recompute(settings: TitanSettings, layers: int, pp: int) -> tuple[str, int]:
    """What is recomputed, and of how many layers of a stage.

    In TOML, `selective` with a number n recomputes every nth layer whole, and n is 2 unless stated.
    """
    section = settings.section("activation_checkpoint")
    mode = str(section.get("mode", "selective"))
    if mode not in ("none", "selective", "full"):
        raise UnknownName(
            f"{settings.source}: activation_checkpoint.mode", mode, ("none", "selective", "full")
        )
    option = str(section.get("selective_ac_option", "2" if settings.form == "toml" else "op"))
    if mode != "selective" or option == "op":
        return SELECTIVE_AC if mode == "selective" else mode, 0
    thing = f"{settings.source}: activation_checkpoint.selective_ac_option"
    if not option.isdigit() or len(option) > 6:
        raise BadInput(thing, option, "must be op or a whole number", "correct it")
    every = int(option)
    if every <= 1:
        return "full", 0
    if not layers:
        rule = f"recomputes every layer whose number {every} divides, and the model is not known"
        raise BadInput(thing, option, rule, "state --model")
    whole = layers // pp // every
    return ("full", whole) if whole else ("none", 0)


def _converters(settings: TitanSettings) -> list[str]:
    found = settings.section("model").get("converters", ())
    if isinstance(found, str):
        return [each.strip() for each in found.split(",") if each.strip()]
    return [str(each) for each in found] if isinstance(found, list | tuple) else [str(found)]


def _precision(settings: TitanSettings) -> str:
    float8 = settings.section("float8")
    older = any(float8.get(name) is True for name in ("enable_float8_linear", "enable_fp8_linear"))
    converters = " ".join(_converters(settings))
    if "nvfp4" in converters:
        return "fp4"
    if older or "float8" in converters or "mx" in converters:
        return "fp8"
    training = Config(values=settings.section("training"), source=f"{settings.source}: training")
    name = training.word("mixed_precision_param", "bfloat16")
    if name not in ("bfloat16", "float32"):
        raise UnknownName(f"{training.source}: mixed_precision_param", name, ("bfloat16", "float32"))
    return "fp32" if name == "float32" else "bf16"


def _precision_notes(settings: TitanSettings) -> Iterator[str]:
    usual = ("float8", "quantize.linear.float8", "quantize.dense.float8")
    odd = [each for each in _converters(settings) if each not in usual]
    if odd:
        yield f"Not considered, and it matters: model.converters {', '.join(odd)}."


def _optimizer_name(settings: TitanSettings) -> str:
    return str(settings.section("optimizer").get("name", ""))


def _optimizer(settings: TitanSettings) -> str:
    """The optimizer by our name, nothing for AdamW with moments in fp32."""
    if settings.section("optimizer").get("implementation") == BF16_MOMENTS:
        return "adamw-bf16"
    return named_optimizer(_optimizer_name(settings), "torchtitan")


def _base_notes(settings: TitanSettings, pp: int) -> Iterator[str]:
    """What to say of settings that a function of torchtitan's own makes."""
    if not settings.base:
        return
    wanted = ["training.seq_len", "activation_checkpoint.mode", "parallelism.tensor_parallel_degree"]
    wanted += ["parallelism.pipeline_parallel_schedule"] if pp > 1 else []
    missing = [name for name in wanted if name not in settings.values]
    if missing:
        yield f"Not in the text: {', '.join(missing)}, which {settings.base} may set; defaults are taken."


def _model(settings: TitanSettings) -> str | None:
    """The catalog's name of the model."""
    stated = settings.section("model")
    for name, (module, function, flavor) in MODELS.items():
        if function in (stated.get("function"), settings.base):
            return name
        if (module, flavor) == (stated.get("module"), stated.get("flavor")):
            return name
    pair = (stated.get("name"), stated.get("flavor"))
    return next((name for name, known in TOML_MODELS.items() if known == pair), None)
