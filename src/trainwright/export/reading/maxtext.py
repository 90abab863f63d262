"""A plan from MaxText's YAML."""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.maxtext import CP_STRATEGIES, FIRST_IN_BF16, GRAD_DTYPES, REMAT
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.known_settings import (
    load_known,
    load_table,
    named_optimizer,
    optimizer_note,
)
from trainwright.export.reading.yaml_text import check_names, flatten, matter_notes
from trainwright.model.architecture import Architecture
from trainwright.model.config_fields import Config
from trainwright.model.load import check_sizes, load_entry
from trainwright.plan.recompute_policies import MAXTEXT_POLICIES
from trainwright.plan.strategy import Strategy

_AXES = ("data", "fsdp", "context", "tensor", "pipeline", "expert")
_BATCH, _SEQ = 12.0, 2048  # MaxText's own defaults
_SIZES = ("base_emb_dim", "base_num_query_heads", "base_num_decoder_layers", "base_mlp_dim", "vocab_size")
_LLAMAS = ("llama2", "mistral", "mixtral")


def read_maxtext(tree: Mapping[str, Any], text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of a configuration; one axis of -1 takes the devices that are left."""
    known, values = load_known("maxtext"), flatten(tree, source)
    check_names(known, values, source, model_stated=stated.architecture is not None)
    config = Config(values=tree, source=source)
    axes = _axes(config, stated.devices)
    model, found = _model(config, source)
    layers = stated.architecture.layers if stated.architecture else found.layers if found else 0
    dp, cp, pp = axes["data"] * axes["fsdp"] * axes["expert"], axes["context"], axes["pipeline"]
    sharded = axes["fsdp"] * axes["expert"] * cp
    vpp = _repeats(config, pp, layers) if pp > 1 else 1
    batch, micro, rounds = _batch(config, stated, dp, prod(axes.values()), pp)
    precision, notes = _precision(config, stated)
    recompute, more = _recompute(config)
    strategy = Strategy(
        dp=dp, tp=axes["tensor"], cp=cp, pp=pp, vpp=vpp, ep=axes["expert"], sp=axes["tensor"] > 1,
        cp_kind=_cp_kind(config) if cp > 1 else "ring",
        schedule="1f1b" if pp == 1 else "interleaved" if vpp > 1 else "gpipe",
        zero=3 if sharded > 1 else 1 if config.flag("shard_optimizer_over_data", False) else 0,
        shard=sharded if sharded > 1 else 0, micro_batch=micro, recompute=recompute,
        offload=_offload(config),
        precision=precision,
    )  # fmt: skip
    return Configured(
        strategy=canonical(strategy), global_batch=stated.global_batch or batch * rounds, stack="maxtext",
        seq=config.whole("max_target_length", _SEQ), model=None if stated.architecture else model,
        architecture=None if stated.architecture else found,
        optimizer=_optimizer(config),
        grad_dtype=_grad_dtype(config),
        notes=(
            *matter_notes(known, _unpredicted(config, values)), *notes, *more,
            *optimizer_note(_opt_type(config), "maxtext"),
            *_partial_notes(config, layers),
        ),
    )  # fmt: skip


def _axes(config: Config, devices: int | None) -> dict[str, int]:
    """The size of each axis, between slices (dcn) times inside one (ici)."""
    names = [f"{kind}_{axis}_parallelism" for kind in ("dcn", "ici") for axis in _AXES]
    default = {"dcn_data_parallelism": -1, "ici_fsdp_parallelism": -1}
    sizes = {name: config.whole(name, default.get(name, 1)) for name in names}
    if sizes["dcn_data_parallelism"] == -1 and config.whole("num_slices", -1) < 2:
        sizes["dcn_data_parallelism"] = 1
    left_open = [name for name, size in sizes.items() if size == -1]
    known = prod(size for size in sizes.values() if size != -1)
    if len(left_open) > 1 or known < 1 or any(size < -1 for size in sizes.values()):
        rule = "must be 1 or more, with -1 at most once"
        raise BadInput(f"{config.source}: sizes of axes", "", rule, "write them out")
    if left_open:
        if devices is None:
            raise BadInput(f"{config.source}: {left_open[0]}", -1, "depends on the devices", "name a cluster")
        if devices % known:
            rule = f"do not divide by the other axes, {known}"
            raise BadInput(config.source, f"{devices} devices", rule, "name a cluster of as many")
        sizes[left_open[0]] = devices // known
    return {axis: sizes[f"dcn_{axis}_parallelism"] * sizes[f"ici_{axis}_parallelism"] for axis in _AXES}


def _repeats(config: Config, pp: int, layers: int) -> int:
    """Times that a microbatch goes round: as stated, or what the layers of a stage leave."""
    stated = config.whole("num_pipeline_repeats", -1)
    if stated > 0:
        return stated
    each = config.whole("num_layers_per_pipeline_stage", 1)
    whole = config.whole("pipeline_parallel_layers", -1)
    whole = whole if whole > 0 else layers
    if each < 1 or not whole or whole % (pp * each):
        rule = f"and {pp} stages do not divide {whole or 'unknown'} layers"
        raise BadInput(f"{config.source}: num_layers_per_pipeline_stage", each, rule, "state --model")
    return whole // (pp * each)


def _partial_notes(config: Config, layers: int) -> Iterator[str]:
    part = config.whole("pipeline_parallel_layers", -1)
    if 0 < part != layers:
        yield f"Only {part} layers are pipelined: predicted with all of them in the pipeline."


def _batch(config: Config, stated: StatedSettings, dp: int, devices: int, pp: int) -> tuple[int, int, int]:
    """Sequences of a run of the pipeline or of one accumulation step, of a microbatch, and such steps."""
    exact = config.rate("per_device_batch_size", _BATCH) * devices
    batch, rounds = round(exact), config.whole("gradient_accumulation_steps", 1)
    if batch < 1 or abs(batch - exact) > 1e-3 * max(batch, 1) or rounds < 1:
        rule = f"gives {exact:g} sequences on {devices} devices"
        raise BadInput(f"{config.source}: per_device_batch_size", exact / devices, rule, "correct it")
    count = config.whole("num_pipeline_microbatches", -1) if pp > 1 else 1
    count = pp if count == -1 else count
    if stated.micro_batch:
        return batch, stated.micro_batch, rounds
    if count < 1 or batch % (dp * count):
        rule = f"is not a whole number of microbatches for each of {dp} replicas"
        raise BadInput(f"{config.source}: batch", batch, rule, "correct per_device_batch_size")
    return batch, batch // (dp * count), rounds


def _cp_kind(config: Config) -> str:
    name = config.word("context_parallel_strategy", "all_gather")
    known = {theirs: ours for ours, theirs in CP_STRATEGIES.items()}
    if name not in known:
        raise UnknownName(f"{config.source}: context_parallel_strategy", name, known)
    return known[name]


def _offload(config: Config) -> str:
    """What waits on the host."""
    policy = config.word("remat_policy", "full")
    input_waits = policy == "custom" and config.word("decoder_layer_input", "device") == "offload"
    activations = policy == "minimal_offloaded" or input_waits
    optimizer = config.flag("optimizer_memory_host_offload", False)
    return {(True, True): "both", (True, False): "optimizer", (False, True): "activations"}.get(
        (optimizer, activations), "none"
    )


def _recompute(config: Config) -> tuple[str, tuple[str, ...]]:
    """What is recomputed, and what to say of a policy that keeps something else."""
    name = config.word("remat_policy", "full")
    if name == "minimal_offloaded":
        return MAXTEXT_POLICIES["minimal"], ()
    if name == "custom" and config.word("decoder_layer_input", "device") == "offload":
        return "full", ()
    exact = {theirs: ours for ours, theirs in REMAT.items()}
    exact["minimal_flash"] = MAXTEXT_POLICIES["minimal_with_context"]  # its older name
    if name in exact:
        return exact[name], ()
    near = load_table("maxtext")["policies"]
    if name not in near:
        raise UnknownName(f"{config.source}: remat_policy", name, [*exact, *near])
    return near[name], (f"Not considered, and it matters: remat_policy {name}, predicted as {near[name]}.",)


def _precision(config: Config, stated: StatedSettings) -> tuple[str, tuple[str, ...]]:
    if stated.precision:
        return stated.precision, ()
    name, known = config.word("quantization", ""), load_table("maxtext")["quantizations"]
    if name and name not in known:
        raise UnknownName(f"{config.source}: quantization", name, known)
    if name:
        usual = name == "fp8"
        return known[name], () if usual else (f"Not considered, and it matters: quantization {name}.",)
    dtype = config.word("dtype", "bfloat16")
    types = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}
    if dtype not in types:
        raise UnknownName(f"{config.source}: dtype", dtype, types)
    return types[dtype], ()


def _optimizer(config: Config) -> str:
    """The optimizer by our name, where it is not AdamW with moments in fp32."""
    return FIRST_IN_BF16 if _first_in_bf16(config) else named_optimizer(_opt_type(config), "maxtext")


def _opt_type(config: Config) -> str:
    return config.word("opt_type", "adamw")


def _first_in_bf16(config: Config) -> bool:
    return _opt_type(config) == "adamw" and config.word("mu_dtype", "float32") == "bfloat16"


def _unpredicted(config: Config, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings without `mu_dtype` where the optimizer's name says it."""
    return {name: each for name, each in values.items() if name != "mu_dtype" or not _first_in_bf16(config)}


def _grad_dtype(config: Config) -> str:
    """The dtype of gradients where it is not MaxText's own, fp32."""
    name, known = config.word("grad_dtype", "float32"), {theirs: ours for ours, theirs in GRAD_DTYPES.items()}
    if name not in known:
        raise UnknownName(f"{config.source}: grad_dtype", name, known)
    return "" if known[name] == "fp32" else known[name]


def _is_gated(config: Config) -> bool:
    """Whether two products are multiplied, as a list of two activations says."""
    found = config.values.get("mlp_activations", ["silu", "linear"])
    return isinstance(found, list) and len(found) == 2


def _model(config: Config, source: str) -> tuple[str | None, Architecture | None]:
    """The model: the catalog's by its name, or a decoder by its sizes."""
    name = config.word("model_name", "default")
    if name != "default":
        try:
            return load_entry(load_table("maxtext")["models"].get(name, name)).architecture.name, None
        except TrainwrightError:
            return None, None
    if any(config.values.get(each) is None for each in _SIZES):
        return None, None
    block = config.word("decoder_block", "llama2")
    if block not in _LLAMAS:
        return None, None
    experts = config.whole("num_experts", 1)
    sizes = [config.whole(each) for each in _SIZES]
    found = Architecture(
        name="configured", hidden=sizes[0], heads=sizes[1], layers=sizes[2], ffn=sizes[3], vocab=sizes[4],
        kv_heads=config.whole("base_num_kv_heads", 0), head_dim=config.whole("head_dim", 128),
        gated=_is_gated(config),
        tied=config.flag("logits_via_embedding", False), max_seq=config.whole("max_target_length", _SEQ),
        experts=experts if experts > 1 else 0,
        top_k=config.whole("num_experts_per_tok", 1) if experts > 1 else 0,
    )  # fmt: skip
    check_sizes(found, source)
    return None, found
