"""A plan from Megatron-LM's flags."""

from trainwright.errors import BadInput, UnknownName
from trainwright.export.canonical import canonical
from trainwright.export.megatron import CP_TYPES, PIPELINE_INSIDE, SHARDED
from trainwright.export.reading.configured import Configured, replicas_of
from trainwright.export.reading.megatron_model import read_model
from trainwright.export.reading.megatron_names import unread
from trainwright.export.reading.words import Flags, parse_flags
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import Strategy

_STAGES = {"no_shard": 0, "optim": 1} | {name: stage for stage, name in SHARDED.items()}


def read_megatron(text: str, source: str, devices: int | None = None) -> Configured:
    """The plan of a Megatron-LM command line or script, on so many devices if it does not say on how many."""
    flags = parse_flags(text, source)
    if not any(flags.has(name) for name in ("tensor-model-parallel-size", "micro-batch-size", "num-layers")):
        raise BadInput(source, "flags", "has none of Megatron-LM's", "name a file of its arguments")
    tp, pp = flags.whole("tensor-model-parallel-size", 1), flags.whole("pipeline-model-parallel-size", 1)
    cp = flags.whole("context-parallel-size", 1)
    dp = replicas_of(devices or _world(flags), tp * cp * pp, source)
    arch = read_model(flags) if flags.has("num-layers") else None
    vpp, notes = _chunks(flags, pp, arch.layers if arch else None)
    strategy = canonical(
        Strategy(
            dp=dp, tp=tp, cp=cp, pp=pp, vpp=vpp, sp=flags.has("sequence-parallel"),
            cp_kind=_cp_kind(flags) if cp > 1 else "ring",
            ep=flags.whole("expert-model-parallel-size", 1),
            etp=flags.whole("expert-tensor-parallel-size", tp if flags.has("num-experts") else 1),
            micro_batch=flags.whole("micro-batch-size", 1),
            schedule="interleaved" if vpp > 1 else "1f1b", zero=_zero(flags), shard=_shard(flags, dp * cp),
            recompute=_recompute(flags), recompute_layers=_layers(flags) * vpp,
            offload="optimizer" if flags.has("optimizer-cpu-offload") else "none",
            precision=_precision(flags), overlap=_overlaps(flags),
            order=PIPELINE_INSIDE if flags.has("use-tp-pp-dp-mapping") else ORDERS[0],
        )
    )  # fmt: skip
    unit = strategy.dp * strategy.micro_batch
    seq = flags.whole("seq-length", 0) or None
    return Configured(
        strategy=strategy, global_batch=flags.whole("global-batch-size", unit), stack="megatron-core",
        seq=seq, architecture=arch, notes=(*notes, *unread(flags)),
    )  # fmt: skip


def _world(flags: Flags) -> int | None:
    """Devices that torchrun's flags say."""
    try:
        return flags.whole("nnodes", 1) * flags.whole("nproc-per-node")
    except BadInput:  # a variable of the script
        return None


def _chunks(flags: Flags, pp: int, layers: int | None) -> tuple[int, tuple[str, ...]]:
    if flags.has("num-virtual-stages-per-pipeline-rank"):
        return flags.whole("num-virtual-stages-per-pipeline-rank"), ()
    if not flags.has("num-layers-per-virtual-pipeline-stage"):
        return 1, ()
    each = flags.whole("num-layers-per-virtual-pipeline-stage")
    if layers is None or not each or layers % (pp * each):
        rule = "does not divide the layers of a stage, or --num-layers is missing"
        raise BadInput(f"{flags.source}: --num-layers-per-virtual-pipeline-stage", each, rule, "correct it")
    return layers // (pp * each), ()


def _cp_kind(flags: Flags) -> str:
    kind = flags.word("cp-comm-type", "p2p")
    known = {name: ours for ours, name in CP_TYPES.items()}
    if kind not in known:
        raise UnknownName(f"{flags.source}: --cp-comm-type", kind, known)
    return known[kind]


def _zero(flags: Flags) -> int:
    if flags.has("use-megatron-fsdp") or flags.has("use-custom-fsdp"):
        name = flags.word("data-parallel-sharding-strategy", "no_shard")
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


def _recompute(flags: Flags) -> str:
    if flags.has("recompute-activations"):
        return "selective"
    name = flags.word("recompute-granularity", "none")
    if name not in ("none", "selective", "full"):
        raise UnknownName(f"{flags.source}: --recompute-granularity", name, ("selective", "full"))
    return name


def _layers(flags: Flags) -> int:
    """Layers of a chunk that are recomputed; 0 for all."""
    block = flags.word("recompute-method", "uniform") == "block" and _recompute(flags) == "full"
    return flags.whole("recompute-num-layers", 1) if block else 0


def _precision(flags: Flags) -> str:
    if flags.has("fp4-format"):
        return "fp4"
    if flags.has("fp8-format"):
        return "fp8"
    return "bf16" if flags.has("bf16") else "fp16" if flags.has("fp16") else "fp32"


def _overlaps(flags: Flags) -> bool:
    return flags.has("overlap-grad-reduce")
