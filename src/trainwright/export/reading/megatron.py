"""A plan from Megatron-LM's flags."""

from collections.abc import Iterator
from dataclasses import replace

from trainwright.errors import BadInput, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.megatron import CP_TYPES, PIPELINE_INSIDE, SHARDED
from trainwright.export.reading.configured import Configured, StatedSettings, check_positive, replicas_of
from trainwright.export.reading.known_settings import load_known, not_considered, optimizer_note
from trainwright.export.reading.launch_flags import Flags, parse_flags
from trainwright.export.reading.megatron_deepspeed import deepspeed_stage
from trainwright.export.reading.megatron_job import job_of
from trainwright.export.reading.megatron_model import read_model
from trainwright.export.reading.megatron_optimizer import optimizer_remarks, read_grad_dtype, read_optimizer
from trainwright.export.reading.megatron_rules import refusals
from trainwright.export.reading.megatron_scope import check_program, check_scope
from trainwright.export.reading.megatron_stages import read_split, split_notes
from trainwright.export.reading.vocabulary import read_vocabulary
from trainwright.model.architecture import Architecture
from trainwright.model.load import check_sizes
from trainwright.plan.mapping import ORDERS
from trainwright.plan.recompute_modules import canonical_recompute
from trainwright.plan.recompute_policies import (
    MEGATRON_DEFAULT,
    MEGATRON_LABELS,
    MEGATRON_NORM,
    MEGATRON_OTHERS,
    megatron_norm,
)
from trainwright.plan.strategy import EVERY_LAYER, Strategy

_OFFLOADED = "cpu-offloading-num-layers"
_STAGES = {"no_shard": 0, "optim": 1} | {name: stage for stage, name in SHARDED.items()}
SIGNATURE = (
    "tensor-model-parallel-size", "micro-batch-size", "num-layers", "use-mcore-models", "hidden-size",
    "model-parallel-size",
)  # fmt: skip


def read_megatron(text: str, source: str, stated: StatedSettings) -> Configured:
    """The plan of a Megatron-LM command line or script, on so many devices if it does not say on how many."""
    known = load_known("megatron")
    flags = parse_flags(
        text, source, SIGNATURE.__contains__, stated=stated.variables, harmless=known.is_harmless
    )
    for name, part in flags.undecided.items():
        raise flags.unsettled(name, part)
    check_program(flags, model_stated=stated.architecture is not None)
    check_scope(flags, known, model_stated=stated.architecture is not None)
    found = plan_of_flags(flags, stated, tuple(not_considered(known, flags.values, "--")))
    return replace(found, refused=_refused(flags, found, stated))


def plan_of_flags(flags: Flags, stated: StatedSettings, notes: tuple[str, ...] = ()) -> Configured:
    """The plan of Megatron-Core's settings by the names of Megatron-LM's flags."""
    tp, pp = _degree(flags, "tensor", 1), _degree(flags, "pipeline", 1)
    cp = _degree(flags, "context", 1)
    devices = stated.devices or _world(flags)
    dp = replicas_of(devices, tp * cp * pp, flags.source)
    arch = stated.architecture
    vocabulary: tuple[str, ...] = ()
    if arch is None and flags.has("num-layers"):
        vocab, vocabulary = read_vocabulary(flags, tp, stated.vocab)
        arch = read_model(flags, vocab)
        check_sizes(arch, flags.source)
    split = read_split(flags, pp, arch.layers if arch else None)
    vpp = split.vpp
    recompute, freed_nothing = _recompute(flags, arch)
    strategy = canonical(
        Strategy(
            dp=dp, tp=tp, cp=cp, pp=pp, vpp=vpp, sp=flags.has("sequence-parallel"),
            cp_kind=_cp_kind(flags) if cp > 1 else "ring", ep=_degree(flags, "expert", 1),
            etp=flags.whole("expert-tensor-parallel-size", tp if arch and arch.experts else 1),
            micro_batch=stated.micro_batch or _micro_batch(flags),
            schedule="interleaved" if vpp > 1 else "1f1b", zero=_zero(flags), shard=_shard(flags, dp * cp),
            recompute=recompute, recompute_layers=_layers(flags) * vpp,
            offload=_offload(flags), offload_layers=_offloaded_layers(flags, arch, pp),
            precision=stated.precision or _precision(flags), overlap=_overlaps(flags),
            order=PIPELINE_INSIDE if flags.has("use-tp-pp-dp-mapping") else ORDERS[0],
        )
    )  # fmt: skip
    unit = strategy.dp * strategy.micro_batch
    notes = (
        *notes, *_values_that_matter(flags, strategy), *vocabulary,
        *freed_nothing, *split_notes(split, pp), *_other_world(flags, stated.devices),
        *flags.notes,
    )  # fmt: skip
    return Configured(
        strategy=strategy, global_batch=check_positive(
            flags.whole("global-batch-size", unit), f"{flags.source}: --global-batch-size"
        ),
        stack="megatron-deepspeed" if flags.has("deepspeed") else "megatron-core",
        seq=flags.whole("seq-length", 0) or None,
        architecture=None if stated.architecture else arch, notes=notes,
        optimizer=read_optimizer(flags), grad_dtype=read_grad_dtype(flags),
    )  # fmt: skip


def _refused(flags: Flags, found: Configured, stated: StatedSettings) -> tuple[str, ...]:
    """The rules of Megatron-LM that the flags break; older software on it has others."""
    if found.stack != "megatron-core":
        return ()
    arch = stated.architecture or found.architecture
    job = job_of(flags, arch, found.strategy.devices, stated.device_family)
    return tuple(f"Megatron-LM refuses {each}." for each in refusals(job))


def _degree(flags: Flags, axis: str, default: int) -> int:
    """A degree of parallelism, also by the names of older releases."""
    older = {"tensor": "model-parallel-size", "expert": "moe-expert-parallel-size"}.get(axis)
    name = "context-parallel-size" if axis == "context" else f"{axis}-model-parallel-size"
    if older and not flags.has(name):
        return flags.whole(older, default)
    return flags.whole(name, default)


def _micro_batch(flags: Flags) -> int:
    name = "micro-batch-size" if flags.has("micro-batch-size") else "batch-size"
    if not flags.has(name):
        rule = "is missing"
        raise BadInput(f"{flags.source}: --micro-batch-size", "", rule, "add it, or state --micro-batch N")
    return flags.whole(name)


def _world(flags: Flags) -> int | None:
    """Devices that the launcher's flags say."""
    both = Flags(values={**flags.values, **flags.launcher}, source=flags.source)
    try:
        if both.has("num-gpus"):
            return both.whole("num-nodes", 1) * both.whole("num-gpus")
        return both.whole("nnodes", 1) * both.whole("nproc-per-node")
    except BadInput:  # a variable of the script
        return None


def _other_world(flags: Flags, devices: int | None) -> Iterator[str]:
    world = _world(flags)
    if devices and world and world != devices:
        yield f"The text launches {world} processes; the plan is for the {devices} devices of the cluster."


def _offload(flags: Flags) -> str:
    """What goes to the host: optimizer states, activations of some layers, or both."""
    optimizer = flags.has("optimizer-cpu-offload")
    if not flags.whole(_OFFLOADED, 0):
        return "optimizer" if optimizer else "none"
    return "both" if optimizer else "activations"


def _offloaded_layers(flags: Flags, arch: Architecture | None, pp: int) -> int:
    """How many layers of a stage offload activations; all but the last are as many as can."""
    layers = flags.whole(_OFFLOADED, 0)
    return EVERY_LAYER if arch and layers >= -(-arch.layers // pp) - 1 else layers


def _cp_kind(flags: Flags) -> str:
    kind = flags.word("cp-comm-type", "p2p")
    known = {name: ours for ours, name in CP_TYPES.items()}
    if kind not in known or len(flags.values.get("cp-comm-type", ())) > 1:
        raise UnknownName(f"{flags.source}: --cp-comm-type", kind, known)
    return known[kind]


def _zero(flags: Flags) -> int:
    if flags.has("deepspeed"):
        return deepspeed_stage(flags)
    if flags.has("use-megatron-fsdp") or flags.has("use-custom-fsdp"):
        if not flags.has("data-parallel-sharding-strategy"):
            rule = "is missing, and its default differs by release"
            raise BadInput(f"{flags.source}: --data-parallel-sharding-strategy", "", rule, "add it")
        name = flags.word("data-parallel-sharding-strategy", "")
        if name not in _STAGES:
            raise UnknownName(f"{flags.source}: --data-parallel-sharding-strategy", name, _STAGES)
        return _STAGES[name]
    if flags.has("use-torch-fsdp2"):
        return 2 if flags.has("torch-fsdp2-no-reshard-after-forward") else 3
    return 1 if flags.has("use-distributed-optimizer") else 0


def _shard(flags: Flags, ranks: int) -> int:
    instances = flags.whole("num-distributed-optimizer-instances", 1)
    if not instances or ranks % instances:
        rule = f"does not divide dp·cp = {ranks}"
        raise BadInput(
            f"{flags.source}: --num-distributed-optimizer-instances", instances, rule, "correct it"
        )
    return ranks // instances if instances > 1 else 0


def _granularity(flags: Flags) -> str:
    if flags.has("recompute-activations"):
        return "selective"
    if any(flags.has(name) for name in ("checkpoint-activations", "activations-checkpoint-method")):
        return "full"  # in older releases
    name = flags.word("recompute-granularity", "none")
    if name not in ("none", "selective", "full"):
        raise UnknownName(f"{flags.source}: --recompute-granularity", name, ("selective", "full"))
    return name


def _recompute(flags: Flags, arch: Architecture | None) -> tuple[str, tuple[str, ...]]:
    """The modules that are recomputed, and what to say of labels that free nothing."""
    granularity = _granularity(flags)
    if granularity != "selective":
        return granularity, ()
    labels = [each.shown for each in flags.values.get("recompute-modules", ())] or [MEGATRON_DEFAULT]
    known = (*MEGATRON_LABELS, MEGATRON_NORM, *MEGATRON_OTHERS)
    for label in labels:
        if label not in known:
            raise UnknownName(f"{flags.source}: --recompute-modules", label, known)
    modules = [MEGATRON_LABELS[label] for label in labels if label in MEGATRON_LABELS]
    notes = [
        f"Not considered, and it matters: --recompute-modules {label}."
        for label in labels
        if label in MEGATRON_OTHERS
    ]
    if MEGATRON_NORM in labels:
        norm = megatron_norm(latent=bool(arch.kv_lora_rank), experts=bool(arch.experts)) if arch else "norm"
        modules += [norm] if norm else []
        if not norm:
            notes.append("--recompute-modules layernorm frees nothing: norms of dense layers are fused.")
    return canonical_recompute("+".join(modules) or "none"), tuple(notes)


def _layers(flags: Flags) -> int:
    """Layers of a chunk that are recomputed; 0 for all."""
    older = flags.word("activations-checkpoint-method", "uniform")
    block = flags.word("recompute-method", older) == "block" and _granularity(flags) == "full"
    name = (
        "recompute-num-layers" if flags.has("recompute-num-layers") else "activations-checkpoint-num-layers"
    )
    return flags.whole(name, 1) if block else 0


def _precision(flags: Flags) -> str:
    if flags.has("fp4-format"):
        return "fp4"
    if any(flags.has(name) for name in ("fp8-format", "fp8-hybrid", "fp8-e4m3")):
        return "fp8"
    return "bf16" if flags.has("bf16") else "fp16" if flags.has("fp16") else "fp32"


def _overlaps(flags: Flags) -> bool:
    return flags.has("overlap-grad-reduce")


_USUAL_VALUES = {
    "moe-token-dispatcher-type": ("alltoall",),
    "transformer-impl": ("transformer_engine",),
    "attention-backend": ("flash", "fused", "auto"),
    "optimizer-offload-fraction": ("1.0", "1"),
    "fp8-recipe": ("delayed", "tensorwise", "mxfp8"),
    "fp4-recipe": ("nvfp4",),
}


def _values_that_matter(flags: Flags, strategy: Strategy) -> Iterator[str]:
    """What to say of values that are read and are predicted as others."""
    if not read_optimizer(flags):
        yield from optimizer_note(flags.word("optimizer", "adam"))
    yield from optimizer_remarks(flags, strategy)
    odd = [
        f"--{name} {flags.word(name, '')}"
        for name, usual in _USUAL_VALUES.items()
        if flags.has(name) and flags.word(name, "") not in usual
    ]
    if strategy.ep > 1 and flags.has("num-experts") and not flags.has("moe-token-dispatcher-type"):
        odd.append("the default --moe-token-dispatcher-type allgather")
    if odd:
        yield f"Not considered, and it matters: {', '.join(odd)}."
