"""Megatron-LM's own rules for its flags: what it refuses when it parses them, builds the model or starts.

The rules are those of NVIDIA/Megatron-LM at d98e8a64 (2026-08-22): megatron/training/arguments.py
(`arguments`), megatron/core/transformer/transformer_config.py and what builds the model from it (`model`),
and process groups, optimizer and schedules (`launch`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from trainwright.export.pipeline_layout import EMBEDDING, LAYER, LOSS, MTP
from trainwright.export.reading.megatron_job import BEFORE_BLACKWELL, MegatronJob
from trainwright.export.reading.megatron_stages import ACCOUNTED, ENDS

_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_EMERGING = ("muon", "dist_muon", "adaptive_muon", "lion", "soap")
_RECOMPUTABLE = (
    "core_attn", "layernorm", "mlp", "moe_act", "moe", "shared_experts", "mla_up_proj", "gdn_norm_out",
    "gdp_in_proj", "gdp_qkv", "mhc",
)  # fmt: skip
_OFFLOADABLE = (
    "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act",
    "fused_group_mlp", "gdp_qkv",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronRefusal:
    """A rule that a job breaks: the setting, the rule, and when Megatron-LM notices."""

    setting: str
    rule: str
    at: str = "arguments"  # or model, or launch

    def __str__(self) -> str:
        return f"{self.setting}: {self.rule}"


Rule = Callable[[MegatronJob], Iterator[MegatronRefusal]]


def refusals(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Every rule that a job breaks."""
    for rule in _RULES:
        yield from rule(job)


def is_valid(job: MegatronJob) -> bool:
    """Whether Megatron-LM takes the flags and builds the model; it may still refuse when it starts."""
    return not any(each.at != "launch" for each in refusals(job))


def _when(broken: object, setting: str, rule: str, at: str = "arguments") -> Iterator[MegatronRefusal]:
    if broken:
        yield MegatronRefusal(setting=setting, rule=rule, at=at)


def _axes(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Degrees, devices and batch."""
    inside = job.tp * job.pp * job.cp * job.weight_shards
    if job.world:
        yield from _when(job.world % inside, "world size", f"{job.world} must divide by tp·pp·cp = {inside}")
        if job.experts:
            grid = job.etp * job.ep * job.pp
            rule = f"{job.world} must divide by etp·ep·pp = {grid}"
            yield from _when(job.world % grid, "world size", rule, "launch")
    yield from _when(
        job.heads % job.tp if job.heads else 0,
        "--tensor-model-parallel-size",
        f"must divide {job.heads} attention heads",
        "model",
    )
    if job.kv_heads and not job.has("multi-latent-attention"):
        unequal = job.kv_heads % job.tp and job.tp % job.kv_heads
        rule = f"must divide {job.kv_heads} query groups, or be a multiple of them"
        yield from _when(unequal, "--tensor-model-parallel-size", rule, "model")
    yield from _when(
        job.cp > 1 and job.seq % (2 * job.cp),
        "--context-parallel-size",
        f"twice of it must divide the sequence of {job.seq}",
    )
    unit = job.replicas * max(job.count("micro-batch-size", 1), 1)
    batch = job.count("global-batch-size")
    rule = f"must divide by micro batch x replicas = {unit}"
    yield from _when(unit and batch % unit, "--global-batch-size", rule, "launch")


def _connections(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """How many queues a device has for kernels."""
    value = job.flags.environment.get(_CONNECTIONS)
    fsdp = job.megatron_fsdp or job.has("use-torch-fsdp2")
    yield from _when(job.megatron_fsdp and value == "1", _CONNECTIONS, "must not be 1 with Megatron-FSDP")
    split = job.tp > 1 or job.cp > 1
    if not split or fsdp or job.overlaps_experts or job.device_family not in BEFORE_BLACKWELL or value == "1":
        return
    if value is not None or job.knows_environment:
        yield MegatronRefusal(setting=_CONNECTIONS, rule="must be 1 with tp or cp before Blackwell")
    else:
        rule = "must be 1 with tp or cp before Blackwell, and the text does not set it"
        yield MegatronRefusal(setting=_CONNECTIONS, rule=rule, at="launch")


def _context(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Context parallelism."""
    kinds, sizes = job.words("cp-comm-type"), job.words("hierarchical-context-parallel-sizes")
    if "a2a+p2p" in kinds:
        rule = "a2a+p2p needs --hierarchical-context-parallel-sizes"
        yield from _when(not sizes, "--cp-comm-type", rule)
    if sizes and all(each.isdecimal() for each in sizes):
        product = prod(int(each) for each in sizes[:8])
        rule = f"their product {product} must be cp = {job.cp}"
        yield from _when(product != job.cp, "--hierarchical-context-parallel-sizes", rule)
    if job.cp > 1 and "a2a" in kinds and job.heads:
        heads = job.heads // job.tp % job.cp or max(job.kv_heads // job.tp, 1) % job.cp
        rule = "a2a needs cp to divide the heads and query groups of a rank"
        yield from _when(heads, "--cp-comm-type", rule, "launch")
    if job.has("hybrid-context-parallel"):
        for broken, what in ((job.pp > 1, "pp"), (job.megatron_fsdp, "Megatron-FSDP"),
                             (job.cuda_graph != "none", "CUDA graphs")):  # fmt: skip
            yield from _when(broken, "--hybrid-context-parallel", f"does not go with {what}")


def _tensor(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Tensor parallelism, its overlap, and weights sharded along it."""
    yield from _when(
        job.has("tp-comm-overlap") and not job.sp, "--tp-comm-overlap", "needs sequence parallelism"
    )
    name = "tensor-parallel-num-weight-shards"
    shards = job.count(name)
    if not shards:
        return
    yield from _when(shards % job.tp, f"--{name}", f"must be a multiple of tp = {job.tp}")
    if shards == job.tp:
        return
    instances = job.count("num-distributed-optimizer-instances", 1)
    yield from _when(instances > 1, f"--{name}", "needs one instance of the distributed optimizer")
    format_ = job.word("ckpt-format", "torch_dist")
    yield from _when(
        format_ not in ("torch", "torch_dist"), f"--{name}", "needs --ckpt-format torch or torch_dist"
    )
    if job.fp8_recipe == "mxfp8":
        for needed in ("fp8-param-gather", "reuse-grad-buf-for-mxfp8-param-ag"):
            yield from _when(not job.has(needed), f"--{name}", f"needs --{needed} with mxfp8")
    if job.has("fp4-format"):
        yield from _when(not job.has("fp4-param-gather"), f"--{name}", "needs --fp4-param-gather with fp4")


def _pipeline(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Interleaved schedules."""
    both = job.has("num-layers-per-virtual-pipeline-stage") and job.has(
        "num-virtual-stages-per-pipeline-rank"
    )
    setting = "--num-virtual-stages-per-pipeline-rank"
    yield from _when(both, setting, "cannot be set with --num-layers-per-virtual-pipeline-stage")
    if job.vpp == 1:
        return
    overlaps = not job.has("no-overlap-p2p-communication")
    yield from _when(overlaps and job.pp == 1, setting, "interleaved stages need pp above 1")
    yield from _when(
        not overlaps and job.pp <= 2,
        "--no-overlap-p2p-communication",
        "interleaved stages without overlap need pp above 2",
    )
    if job.microbatches:
        group = job.count("microbatch-group-size-per-virtual-pipeline-stage", job.pp) or job.pp
        count, rest = job.microbatches, job.microbatches % group
        broken = not job.pp <= group <= count or (rest and rest < job.pp)
        rule = f"{count} microbatches must be whole groups of {group}, at least pp = {job.pp} in each"
        yield from _when(broken, "--global-batch-size", rule, "launch")


def _stages(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """How layers are cut."""
    name = "pipeline-model-parallel-layout"
    if job.has(name):
        yield from _layout(job, f"--{name}")
        return
    if not job.layers:
        return
    first, last = job.uneven_ends
    if first is not None or last is not None:
        yield from _ends(job, first, last)
        return
    total = job.layers + job.accounted
    at = "model" if job.states_chunks else "arguments"
    counted = f"{total} layers" + (" (embedding and loss counted)" if job.accounted else "")
    yield from _when(total % job.pp, "--pipeline-model-parallel-size", f"must divide {counted}", at)
    each = job.count("num-layers-per-virtual-pipeline-stage")
    if total % job.pp == 0 and each:
        rule = f"must divide the {total // job.pp} layers of a stage"
        yield from _when(total // job.pp % each, "--num-layers-per-virtual-pipeline-stage", rule)
    elif total % job.pp == 0:
        rule = f"must divide the {total // job.pp} layers of a stage"
        yield from _when(total // job.pp % job.vpp, "--num-virtual-stages-per-pipeline-rank", rule, "model")


def _layout(job: MegatronJob, setting: str) -> Iterator[MegatronRefusal]:
    for other in (*ACCOUNTED, *ENDS):
        yield from _when(job.has(other), setting, f"cannot be set with --{other}")
    yield from _when(job.states_chunks, setting, "states the chunks of stages: leave out their number")
    layout = job.layout
    if layout is None:
        yield MegatronRefusal(setting=setting, rule="is no layout of E, t, m, L and |")
        return
    letters, mtp = layout.letters, job.count("mtp-num-layers")
    yield from _when(
        len(layout.chunks) % job.pp, setting, f"pp = {job.pp} must divide {len(layout.chunks)} chunks"
    )
    first = letters.startswith(EMBEDDING) and letters.count(EMBEDDING) == 1
    yield from _when(not first or not layout.chunks[0], setting, "must begin with E, and have one")
    last = letters.endswith(LOSS) and letters.count(LOSS) == 1
    yield from _when(not last or not layout.chunks[-1], setting, "must end with L, and have one", "model")
    found = letters.count(LAYER)
    yield from _when(
        job.layers and found != job.layers,
        setting,
        f"has {found} layers, and the model {job.layers}",
        "model",
    )
    yield from _when(
        letters.count(MTP) != mtp, setting, f"has {letters.count(MTP)} MTP layers for {mtp}", "model"
    )
    homes = [index % job.pp for index, each in enumerate(layout.chunks) if MTP in each]
    yield from _when(len(homes) > 1, setting, "must have all MTP layers in one chunk", "model")
    yield from _when(
        job.pp > 1 and 0 in homes, setting, "must not have MTP layers on the first stage", "model"
    )


def _ends(job: MegatronJob, first: int | None, last: int | None) -> Iterator[MegatronRefusal]:
    """First and last stages of their own numbers of layers."""
    setting = f"--{ENDS[0] if first is not None else ENDS[1]}"
    yield from _when(job.accounted, setting, f"cannot be set with --{ACCOUNTED[0]}", "model")
    yield from _when(
        job.has("num-layers-per-virtual-pipeline-stage"),
        setting,
        "needs --num-virtual-stages-per-pipeline-rank for chunks",
    )
    stated = [each for each in (first, last) if each is not None]
    yield from _when(any(each < 1 for each in stated), setting, "must be above 0", "model")
    yield from _when(
        any(each % job.vpp for each in stated), setting, f"must divide by {job.vpp} chunks", "model"
    )
    rest, middle = job.layers - sum(stated), job.pp - len(stated)
    if middle <= 0:
        yield from _when(rest or middle < 0, setting, f"leaves {rest} layers and no stage for them", "model")
        return
    yield from _when(rest < 0 or rest % middle, setting, f"leaves {rest} layers for {middle} stages", "model")
    if rest % middle == 0:
        yield from _when(
            rest // middle % job.vpp,
            setting,
            f"leaves {rest // middle} layers a stage for {job.vpp} chunks",
            "model",
        )


def _sharding(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """The distributed optimizer and its overlap."""
    sharded = job.has("use-distributed-optimizer") or job.megatron_fsdp
    if job.has("overlap-param-gather"):
        layerwise = job.word("optimizer", "adam") in _EMERGING
        yield from _when(
            not (sharded or layerwise), "--overlap-param-gather", "needs --use-distributed-optimizer"
        )
        rule = "needs --overlap-grad-reduce"
        yield from _when(not job.has("overlap-grad-reduce"), "--overlap-param-gather", rule)
    name = "overlap-param-gather-with-optimizer-step"
    if job.has(name):
        for needed in ("use-distributed-optimizer", "overlap-param-gather"):
            yield from _when(not job.has(needed), f"--{name}", f"needs --{needed}")
        yield from _when(job.vpp == 1, f"--{name}", "needs interleaved stages")
        torch_dist = job.word("ckpt-format", "torch_dist") == "torch_dist"
        yield from _when(torch_dist, f"--{name}", "does not go with --ckpt-format torch_dist")
    instances = job.count("num-distributed-optimizer-instances", 1)
    name = "--num-distributed-optimizer-instances"
    yield from _when(instances > 1 and not sharded, name, "needs --use-distributed-optimizer")
    ranks = job.replicas * job.cp
    yield from _when(
        instances < 1 or (ranks and ranks % instances), name, f"must divide dp·cp = {ranks}", "launch"
    )
    if job.has("use-tp-pp-dp-mapping") and job.pp > 1 and job.experts and job.world:
        dense, expert = job.tp * job.cp, job.etp * job.ep
        rule = f"needs as many replicas of experts as of the rest: etp·ep = {expert}, tp·cp = {dense}"
        yield from _when(dense != expert, "--use-tp-pp-dp-mapping", rule, "launch")


def _fsdp(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Megatron-FSDP."""
    if not job.megatron_fsdp:
        return
    name, optimizer = "--use-megatron-fsdp", job.word("optimizer", "adam")
    strategy = job.word("data-parallel-sharding-strategy", "optim_grads_params")
    yield from _when(optimizer not in ("adam", "sgd"), name, f"does not go with --optimizer {optimizer}")
    yield from _when(
        job.word("ckpt-format", "torch_dist") != "fsdp_dtensor", name, "needs --ckpt-format fsdp_dtensor"
    )
    for other in ("use-torch-fsdp2", "moe-single-grouped-weight"):
        yield from _when(job.has(other), name, f"does not go with --{other}")
    rule = "does not go with sharding strategy no_shard"
    yield from _when(
        strategy == "no_shard" and job.has("init-model-with-meta-device"),
        "--init-model-with-meta-device",
        rule,
    )
    name = "check-weight-hash-across-dp-replicas-interval"
    yield from _when(strategy == "optim_grads_params" and job.has(name), f"--{name}", "needs whole weights")
    if job.overlaps_experts:
        name = "--overlap-moe-expert-parallel-comm"
        rule = "does not go with double buffers of Megatron-FSDP"
        double = job.has("fsdp-double-buffer") or job.has("use-nccl-ub")
        yield from _when(double, name, rule, "launch")
        partial = job.cuda_graph not in ("none", "full_iteration")
        yield from _when(partial, name, "needs no or full-iteration CUDA graphs with Megatron-FSDP", "launch")


def _torch_fsdp(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """PyTorch's FSDP2 in Megatron-LM."""
    if not job.has("use-torch-fsdp2"):
        return
    name = "--use-torch-fsdp2"
    for broken, what in (
        (job.pp > 1, "pipeline parallelism"), (job.ep > 1, "expert parallelism"),
        (job.has("use-distributed-optimizer"), "--use-distributed-optimizer"),
        (not job.has("no-gradient-accumulation-fusion"), "gradient accumulation fusion"),
        (job.has("fp16"), "fp16"), (job.tied, "tied embeddings"),
        (job.word("optimizer", "adam") in _EMERGING, f"--optimizer {job.word('optimizer', 'adam')}"),
    ):  # fmt: skip
        yield from _when(broken, name, f"does not go with {what}")


def _experts(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Experts: their split, router and dispatch."""
    if job.ep > 1:
        setting = "--expert-model-parallel-size"
        yield from _when(job.layers and not job.experts, setting, "needs a model with experts")
        yield from _when(job.experts % job.ep, setting, f"must divide {job.experts} experts")
    score = job.word("moe-router-score-function", "softmax")
    bias = job.has("moe-router-enable-expert-bias") and score not in ("sigmoid", "sqrtsoftplus")
    rule = "needs --moe-router-score-function sigmoid or sqrtsoftplus"
    yield from _when(bias, "--moe-router-enable-expert-bias", rule, "model")
    single = job.count("moe-router-topk", 2) == 1 and score == "softmax" and job.has("num-experts")
    plain = not job.has("moe-router-pre-softmax") and job.word("moe-router-load-balancing-type") != "sinkhorn"
    yield from _when(single and plain, "--moe-router-topk", "1 needs --moe-router-pre-softmax", "model")
    dispatcher = job.word("moe-token-dispatcher-type", "allgather")
    overlap = job.has("moe-shared-expert-overlap")
    rule = "needs --moe-token-dispatcher-type alltoall"
    yield from _when(overlap and dispatcher == "allgather", "--moe-shared-expert-overlap", rule, "model")
    padded = job.has("moe-pad-expert-input-to-capacity") and not job.has("moe-expert-capacity-factor")
    rule = "needs --moe-expert-capacity-factor"
    yield from _when(padded, "--moe-pad-expert-input-to-capacity", rule, "model")


def _expert_overlap(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """All-to-alls of experts behind compute, and weight gradients that are put off for them."""
    name = "--overlap-moe-expert-parallel-comm"
    delays = job.has("delay-wgrad-compute") and not job.overlaps_experts
    yield from _when(delays, "--delay-wgrad-compute", f"needs {name}", "model")
    if not job.overlaps_experts:
        return
    dispatcher = job.word("moe-token-dispatcher-type", "allgather")
    for broken, rule in (
        (job.ep == 1, "needs expert parallelism"),
        (dispatcher not in ("alltoall", "flex"), "needs --moe-token-dispatcher-type alltoall or flex"),
        (job.pp > 1 and job.vpp == 1, "needs interleaved stages with pp above 1"),
        (not (job.has("bf16") or job.has("fp16")), "needs --bf16 or --fp16"),
        (job.count("mtp-num-layers") > 1, "goes with at most one MTP layer"),
        (job.recompute == "full", "does not go with full recomputation"),
        ("moe" in job.recompute_modules, "does not go with recomputation of moe"),
        (job.has("moe-shared-expert-overlap"), "does not go with --moe-shared-expert-overlap"),
    ):  # fmt: skip
        yield from _when(broken, name, rule, "model")


def _recomputation(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Recomputation, alone and with fp8."""
    kind, modules = job.recompute, job.recompute_modules
    setting = "--recompute-granularity"
    yield from _when(kind not in ("none", "selective", "full"), setting, "must be selective or full")
    if kind == "selective":
        yield from _when(job.has("recompute-method"), setting, "selective takes no --recompute-method")
        yield from _when(
            job.has("recompute-num-layers"), setting, "selective takes no number of layers", "model"
        )
    if kind == "full":
        method = job.word("recompute-method") in ("uniform", "block")
        yield from _when(not method, setting, "full needs --recompute-method uniform or block", "model")
        yield from _when(
            not job.has("recompute-num-layers"), setting, "full needs --recompute-num-layers", "model"
        )
    for module in modules:
        known = module in _RECOMPUTABLE
        yield from _when(
            not known, "--recompute-modules", f"{module} is none of {', '.join(_RECOMPUTABLE)}", "model"
        )
    yield from _when(
        "moe_act" in modules and not job.has("moe-grouped-gemm"),
        "--recompute-modules",
        "moe_act needs --moe-grouped-gemm",
        "model",
    )
    yield from _when(
        "mla_up_proj" in modules and not job.has("multi-latent-attention"),
        "--recompute-modules",
        "mla_up_proj needs --multi-latent-attention",
        "model",
    )
    yield from _when(
        "shared_experts" in modules and job.has("moe-shared-expert-overlap"),
        "--recompute-modules",
        "shared_experts does not go with --moe-shared-expert-overlap",
        "model",
    )
    delayed = job.fp8_recipe == "delayed" and {*modules} & {"layernorm", "moe_act"}
    yield from _when(
        delayed, "--recompute-modules", "layernorm and moe_act need another fp8 recipe than delayed", "model"
    )
    if job.has("distribute-saved-activations"):
        broken = kind != "full" or job.tp == 1 or job.sp
        rule = "needs full recomputation and tp without sequence parallelism"
        yield from _when(broken, "--distribute-saved-activations", rule)


def _offload(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Activations and optimizer states on the host."""
    name, layers = "--cpu-offloading-num-layers", job.count("cpu-offloading-num-layers")
    if layers:
        yield from _when(
            job.layers and layers >= job.layers, name, f"must be below {job.layers} layers", "model"
        )
        yield from _when(job.pp > 1, name, "does not go with pipeline parallelism", "model")
        yield from _when(job.recompute != "none", name, "does not go with recomputation", "model")
        graphs = job.cuda_graph not in ("none", "full_iteration")
        yield from _when(graphs, name, "does not go with partial CUDA graphs", "model")
    if job.has("fine-grained-activation-offloading"):
        name, modules = "--fine-grained-activation-offloading", job.words("offload-modules")
        yield from _when(layers, name, "does not go with --cpu-offloading-num-layers", "model")
        yield from _when(not modules, name, "needs --offload-modules", "model")
        for module in modules:
            rule = f"{module} is none of {', '.join(_OFFLOADABLE)}"
            yield from _when(module not in _OFFLOADABLE, "--offload-modules", rule, "model")
        alone = "attn_proj" in modules and "core_attn" not in modules
        yield from _when(alone, "--offload-modules", "attn_proj needs core_attn", "model")
    aware = job.has("use-precision-aware-optimizer")
    if job.has("optimizer-cpu-offload"):
        yield from _when(not aware, "--optimizer-cpu-offload", "needs --use-precision-aware-optimizer")
        rule = "with --fp8-param-gather needs the fp8 recipe delayed"
        gathers = job.has("fp8-param-gather") and job.fp8_recipe != "delayed"
        yield from _when(gathers, "--optimizer-cpu-offload", rule)
    optimizer = job.word("optimizer", "adam")
    yield from _when(aware and optimizer != "adam", "--use-precision-aware-optimizer", "needs Adam", "launch")
    sharded = job.has("use-distributed-optimizer") or job.megatron_fsdp
    yield from _when(
        aware and not sharded,
        "--use-precision-aware-optimizer",
        "needs --use-distributed-optimizer",
        "launch",
    )


def _precision(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Number formats."""
    yield from _when(job.has("fp16") and job.has("bf16"), "--fp16", "does not go with --bf16")
    yield from _when(job.fp8_recipe and job.has("fp4-format"), "--fp4-format", "does not go with fp8")
    if job.fp8_recipe == "delayed":
        rule = "needs another fp8 recipe than delayed"
        yield from _when(job.has("first-last-layers-bf16"), "--first-last-layers-bf16", rule, "model")
    yield from _when(
        job.has("fp8-output-proj") and job.fp8_recipe != "mxfp8",
        "--fp8-output-proj",
        "needs the fp8 recipe mxfp8",
        "model",
    )
    name = "reuse-grad-buf-for-mxfp8-param-ag"
    if job.has(name):
        fits = job.fp8_recipe == "mxfp8" and job.has("fp8-param-gather")
        yield from _when(not fits, f"--{name}", "needs the fp8 recipe mxfp8 and --fp8-param-gather")
    blackwell = job.fp8_recipe == "mxfp8" or job.has("fp4-format")
    yield from _when(
        blackwell and job.device_family in BEFORE_BLACKWELL,
        "--fp4-format" if job.has("fp4-format") else "--fp8-recipe",
        "needs Blackwell",
        "launch",
    )


def _graphs(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """CUDA graphs."""
    kind = job.cuda_graph
    if kind == "none":
        return
    name = "--cuda-graph-impl"
    partial = kind != "full_iteration"
    yield from _when(
        partial and job.recompute == "full", name, "full recomputation needs full_iteration", "model"
    )
    checks = not job.has("no-check-for-nan-in-loss-and-grad")
    yield from _when(not partial and checks, name, "full_iteration needs --no-check-for-nan-in-loss-and-grad")
    modules = {*job.words("cuda-graph-modules"), *job.words("cuda-graph-scope")}
    dropless = not (job.has("moe-expert-capacity-factor") and job.has("moe-pad-expert-input-to-capacity"))
    yield from _when(
        "moe" in modules and dropless,
        "--cuda-graph-modules",
        "moe needs experts of a fixed capacity",
        "model",
    )


def _others(job: MegatronJob) -> Iterator[MegatronRefusal]:
    """Pairs that belong to no other topic."""
    fused = job.has("cross-entropy-loss-fusion") and job.word("cross-entropy-fusion-impl", "native") == "te"
    yield from _when(fused, "--cross-entropy-fusion-impl", "te is refused; use native")
    name = "--defer-embedding-wgrad-compute"
    if job.has("defer-embedding-wgrad-compute"):
        yield from _when(job.pp == 1, name, "needs pp above 1", "model")
        rule = "needs gradient accumulation fusion"
        yield from _when(job.has("no-gradient-accumulation-fusion"), name, rule, "model")
    both = job.has("multi-latent-attention") and job.has("group-query-attention")
    yield from _when(both, "--multi-latent-attention", "does not go with --group-query-attention")


_RULES: tuple[Rule, ...] = (
    _axes, _connections, _context, _tensor, _pipeline, _stages, _sharding, _fsdp, _torch_fsdp, _experts,
    _expert_overlap, _recomputation, _offload, _precision, _graphs, _others,
)  # fmt: skip
