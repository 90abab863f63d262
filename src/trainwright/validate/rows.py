"""A row of a table of runs as a case: model, cluster, software, batch, and what is known of the strategy."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite, prod
from typing import TypedDict

from trainwright.cluster.load import find_device_alias, load_device, load_network
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput, TrainwrightError, UnknownName
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.plan.recompute_modules import NAMES, canonical_recompute, selective_of
from trainwright.plan.recompute_policies import (
    MAXTEXT_POLICIES,
    MEGATRON_DEFAULT,
    MEGATRON_LABELS,
    MEGATRON_NORM,
    SELECTIVE_AC,
    megatron_norm,
)
from trainwright.plan.strategy import EVERY_LAYER, OFFLOADS, PRECISIONS, RECOMPUTES, SCHEDULES
from trainwright.search.space import layer_count
from trainwright.stack.load import capability_of
from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS
from trainwright.validate.row_experts import STACKS_OWN, RowExperts, row_experts
from trainwright.validate.row_software import release_date, row_software

Row = Mapping[str, str]

# Tables of configurations that ran out of memory name some columns differently.
_OTHER_NAMES = {
    "model": "model_name", "params_b": "n_params_B", "global_batch": "global_batch_seqs",
    "zero": "zero_stage_or_fsdp", "attention": "kernel",
}  # fmt: skip
_RECOMPUTE = {
    "none": "none", "off": "none", "no": "none", "false": "none", "0": "none",
    "full": "full", "block": "full", "on": "full", "yes": "full", "true": "full", "1": "full",
}  # fmt: skip
_BY_LABELS = ("megatron-core", "megatron-lm", "megatron-bridge", "nemo")
_OTHER_LABELS = {"norm": MEGATRON_NORM, "act": "moe_act", "shared_expert": "shared_experts"}
_SHARDED = ("fsdp", "fsdp1", "fsdp2", "full_shard", "full-shard", "hsdp")
_MOST = {
    "gpus": 1e7, "layers": 1e4, "hidden": 1e8, "ffn_hidden": 1e8, "vocab": 1e8, "seq_len": 1e8,
    "global_batch": 1e9, "micro_batch": 1e6,
}  # fmt: skip
_MOST_OF_OTHERS = 1e7
_LEAST = 1e-9
_OFFLOADED = re.compile(r"activations of ([0-9]{1,6}) layers to host")
_OFFLOADED_SHARE = re.compile(r"activations ([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%(?: of each layer)? to host")
_MISBUILT = 0.05  # relative difference of stated and built parameters from which a row is doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measured run: the question that it answers, and the knobs that it states."""

    id: str
    source: str
    graph: Graph
    cluster: Cluster
    framework: str
    attention: str
    fused_norms: bool  # stated to run fused norm kernels where its stack's are not
    seq: int
    global_batch: int
    fixed: Mapping[str, tuple[int, ...]]
    step_time_s: float | None
    memory_gib: float | None
    optimizer: str = ""  # as stated
    grad_dtype: str = ""
    figure: str = ""  # what its memory counts, one of MEMORY_FIGURES; "": what the stack's users quote
    fused_loss: bool | None = None
    is_eager: bool = False
    expandable_segments: bool = False
    experts: RowExperts = STACKS_OWN
    release: str = ""  # the month of its software, as `2025-06`; "": not stated
    remarks: tuple[str, ...] = ()  # what is doubtful about it, each a reason for a wider range
    doubt: float = 1.0  # by how much the range is wider on either side


def parse_case(row: Row, own: Cluster | None = None) -> Case:
    """The case of one row; an empty cell is not stated.

    A run on the device of an `own` cluster is on its network, if that joins as many devices; what the row
    states of its nodes and their interconnect goes before.
    """
    devices = _whole(row, "gpus")
    framework = _text(row, "framework") or _framework_of(row)
    graph = _graph(row)
    _refuse_unmodelled(row)
    software = row_software(row, framework, graph.name)
    cluster, release = _cluster(row, devices, own), release_date(_text(row, "release"))
    remarks, doubt = _parameter_doubt(row, graph)
    return Case(
        id=_text(row, "id"),
        source=_text(row, "source"),
        graph=graph,
        cluster=cluster,
        framework=framework,
        attention=_attention(row),
        fused_norms="rms kernel" in _kernel(row),
        seq=_whole(row, "seq_len"),
        global_batch=_whole(row, "global_batch"),
        fixed=_knobs(row, devices, graph),
        step_time_s=_number(row, "step_time_s"),
        memory_gib=_number(row, "memory_gib"),
        optimizer=_listed("optimizer", software.optimizer, OPTIMIZERS),
        grad_dtype=_listed("grad_dtype", software.grad_dtype, GRADIENT_BYTES),
        figure=software.figure,
        fused_loss=software.fused_loss,
        is_eager=software.is_eager,
        expandable_segments=software.expandable_segments,
        experts=row_experts(row, capability_of(framework), release, graph.name, cluster.device.name),
        release=release,
        remarks=remarks,
        doubt=doubt,
    )


def _parameter_doubt(row: Row, graph: Graph) -> tuple[tuple[str, ...], float]:
    """A remark and a wider range where the model that was built is not of the size that the row states."""
    stated = (_number(row, "params_b") or 0.0) * 1e9
    if not stated:
        return (), 1.0
    ratio = parameters(graph) / stated
    if abs(ratio - 1.0) <= _MISBUILT:
        return (), 1.0
    remark = f"{stated / 1e9:.3g}B parameters are stated, {parameters(graph) / 1e9:.3g}B were built"
    return (remark,), max(ratio, 1.0 / ratio)


def _refuse_unmodelled(row: Row) -> None:
    """Raise for a run that no strategy describes: parts of layers offloaded, or weights that are frozen."""
    offload = _text(row, "offload").lower()
    if offload not in ("", "none") and not _OFFLOADED.fullmatch(offload) and not _moved_share(offload):
        raise _bad("offload", offload, "is not one of a strategy's")
    if "lora" in (workload := _text(row, "workload").lower()):
        raise _bad("workload", workload, "freezes weights, which is not predicted")


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    if value is None:
        value = row.get(_OTHER_NAMES.get(name, ""), "")
    return (value or "").strip()


def _listed(name: str, text: str, known: Mapping[str, object]) -> str:
    """A name that must be known, or nothing where the cell is empty."""
    if text and text not in known:
        raise _bad(name, text, f"is none of {', '.join(known)}")
    return text


def _number(row: Row, name: str) -> float | None:
    text = _text(row, name)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        raise _bad(name, text, "is not a number") from None
    if not isfinite(number):
        raise _bad(name, text, "is not a finite number")
    if number < 0:
        raise _bad(name, text, "is negative")
    most = _MOST.get(name, _MOST_OF_OTHERS)
    if number > most:
        raise _bad(name, text, f"is more than {most:,.0f}")
    if 0 < number < _LEAST:
        raise _bad(name, text, f"is less than {_LEAST:g}")
    return number


def _bad(name: str, text: str, rule: str) -> BadInput:
    return BadInput(f"column {name}", text, rule, "correct the cell or leave it empty")


def _whole(row: Row, name: str) -> int:
    number = _number(row, name)
    if number is None or number < 1 or number != int(number):
        raise BadInput(
            f"column {name}", _text(row, name), "needs a whole number above zero", "fill in the cell"
        )
    return int(number)


def _optional(row: Row, name: str) -> int:
    """A whole number, or 0 where the cell is empty."""
    number = _number(row, name) or 0.0
    if number != int(number):
        raise _bad(name, _text(row, name), "is not a whole number")
    return int(number)


def _framework_of(row: Row) -> str:
    """The tables of failures do not name software: their sources do."""
    source = _text(row, "source")
    return (
        "nanotron" if "Playbook" in source else "aleph-alpha-scaling" if "Hagemann" in source else "generic"
    )


def _kernel(row: Row) -> str:
    """The kernels that a row names, in a column of its own or as `kernel=…` in its notes."""
    stated = re.search(r"kernel=([^;]*)", _text(row, "notes"))
    return (_text(row, "kernel") or (stated[1] if stated else "")).lower()


def _attention(row: Row) -> str:
    text = _text(row, "attention").lower()
    if text in ("torch", "fused", "unfused", "eager", "math"):
        return "unfused"
    return "flash"


def _knobs(row: Row, devices: int, graph: Graph) -> dict[str, tuple[int, ...]]:
    """Stated knobs as fixed values; sequence parallelism and ZeRO are the stack's to choose if not stated."""
    fixed: dict[str, tuple[int, ...]] = {}
    for name in ("dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch"):
        if value := _optional(row, name):
            fixed[name] = (value,)
    model_parallel = _known(fixed, "tp") * _known(fixed, "pp") * _known(fixed, "cp")
    if "dp" in fixed and {"tp", "pp"} <= set(fixed) and fixed["dp"][0] * model_parallel != devices:
        fixed["dp"] = (max(devices // model_parallel, 1),)
    if model_parallel > devices:
        raise _bad("tp, pp, cp", str(model_parallel), f"multiply to more than {devices} devices")
    if zero := _text(row, "zero").lower():
        fixed["zero"] = (_zero(zero),)
        if zero == "hsdp":
            fixed["shard"] = (_optional(row, "gpus_per_node") or 8,)
    if sequence := _text(row, "sequence_parallel").lower():
        fixed["sp"] = (int(_flag("sequence_parallel", sequence) and _known(fixed, "tp") > 1),)
    if recompute := _text(row, "recompute").lower():
        fixed["recompute"] = (RECOMPUTES.index(_recompute(recompute, row, graph)),)
        if layers := _recomputed_layers(_text(row, "recompute_detail"), layer_count(graph)):
            fixed["recompute"] = (RECOMPUTES.index("full"),)
            fixed["recompute_layers"] = (layers,)
    fixed |= _offload(row, layer_count(graph), _known(fixed, "pp"))
    if _known(fixed, "pp") > 1 and (schedule := _schedule(row)):
        fixed["schedule"] = (SCHEDULES.index(schedule),)
    if precision := _text(row, "precision").lower():
        fixed["precision"] = (PRECISIONS.index(_precision(precision)),)
    return fixed


def _schedule(row: Row) -> str:
    """The schedule of a pipeline that a row's words name; empty if they name none."""
    words = f"{_text(row, 'notes')}; {_text(row, 'other_knobs')}".lower()
    if "interleaved" in words:
        return "interleaved"
    return "1f1b" if re.search(r"\b1f1b\b(?! a2a)", words) else ""


def _moved_share(offload: str) -> re.Match[str] | None:
    """The words of a row that moves a share of activations to the host."""
    found = _OFFLOADED_SHARE.fullmatch(offload)
    return found if found and float(found[1]) <= 100.0 else None


def _offload(row: Row, layers: int, stages: int) -> dict[str, tuple[int, ...]]:
    """Activations of some layers on the host; that of the last one stays anyway.

    A share of the activations counts as that share of a stage's layers, as it moves as many bytes.
    """
    offload = _text(row, "offload").lower()
    if share := _moved_share(offload):
        layers = -(-layers // stages)
        count = round(float(share[1]) / 100.0 * layers)
        if count == 0:
            return {}
    elif found := _OFFLOADED.fullmatch(offload):
        count = int(found[1])
        if not 0 < count <= layers:
            raise _bad("offload", found[0], f"the model has {layers} layers")
    else:
        return {}
    moved = EVERY_LAYER if count >= layers - 1 else count
    return {"offload": (OFFLOADS.index("activations"),), "offload_layers": (moved,)}


def _recomputed_layers(detail: str, layers: int) -> int:
    """How many layers a row recomputes whole (`num_layers=2`, `every 2nd layer`); 0 if it does not say."""
    if counted := re.search(r"num_layers=(\d+)", detail):
        return int(counted[1])
    every = re.search(r"every (\d+)(?:st|nd|rd|th) (?:layer|block)", detail)
    return max(layers // int(every[1]), 1) if every and int(every[1]) > 1 else 0


def _zero(text: str) -> int:
    """The ZeRO stage that a text names: `1`, `ZeRO-1`, `fsdp`."""
    if stage := re.fullmatch(r"(?:zero[-_ ]?)?([0-3])(?:\.0)?", text):
        return int(stage[1])
    if text == "ddp":
        return 0
    if text not in _SHARDED:
        raise BadInput(
            "column zero", text, "is no stage of ZeRO", "use 0 to 3, fsdp or hsdp, or leave it empty"
        )
    return 3


def _recompute(text: str, row: Row, graph: Graph) -> str:
    """The modules that a row recomputes: its own words, or what `selective` means for its software."""
    if text in _RECOMPUTE:
        return _RECOMPUTE[text]
    if text in MAXTEXT_POLICIES:
        return MAXTEXT_POLICIES[text]
    if re.match(r"(selective|minimal)(?![a-z])", text):
        return _selective(row, graph)
    try:
        return canonical_recompute(text)
    except UnknownName:
        remedy = f"use one of {', '.join((*dict.fromkeys(_RECOMPUTE.values()), *MAXTEXT_POLICIES, *NAMES))}"
        raise BadInput("column recompute", text, "is not known", remedy) from None


def _selective(row: Row, graph: Graph) -> str:
    """What a run with selective recomputation recomputes, by the words of its column recompute_detail."""
    names = {op.name for segment in graph.segments for op in segment.block.ops}
    latent, experts = "attention.kv_up" in names, "dispatch" in names
    software = _text(row, "framework").lower()
    said = re.findall(r"[a-z_]+", _text(row, "recompute_detail").lower())
    labels = [_OTHER_LABELS.get(each, each) for each in said]
    modules = [MEGATRON_LABELS[each] for each in labels if each in MEGATRON_LABELS]
    if MEGATRON_NORM in labels:
        modules += [found] if (found := megatron_norm(latent=latent, experts=experts)) else []
        return canonical_recompute("+".join(modules) or "none")
    if modules:
        return canonical_recompute("+".join(modules))
    if software.startswith("torchtitan"):
        return SELECTIVE_AC
    if software in _BY_LABELS:
        return MEGATRON_DEFAULT
    return selective_of("selective", unfused=_attention(row) == "unfused")


def _precision(text: str) -> str:
    """The precision that a text names (`mxfp8`, `bf16-mixed`, `FP8 (current scaling)`)."""
    for name in ("fp4", "fp8", "bf16", "fp16", "fp32"):
        if name in text:
            return name
    raise BadInput("column precision", text, "is not known", "use one of " + ", ".join(PRECISIONS))


def _flag(name: str, text: str) -> bool:
    words = {
        "1": True,
        "1.0": True,
        "yes": True,
        "true": True,
        "0": False,
        "0.0": False,
        "no": False,
        "false": False,
    }
    if text not in words:
        raise BadInput(f"column {name}", text, "is neither yes nor no", "write 1 or 0, or leave it empty")
    return words[text]


def _known(fixed: Mapping[str, tuple[int, ...]], name: str) -> int:
    return fixed.get(name, (1,))[0]


def _joins(cluster: Cluster, devices: int) -> bool:
    """Whether the network of a cluster is large enough for a number of devices."""
    try:
        return bool(replace(cluster, count=devices).levels) or devices == 1
    except BadInput:
        return False


def _cluster(row: Row, devices: int, own: Cluster | None) -> Cluster:
    hardware = _text(row, "hardware")
    is_named = own is not None and hardware in (own.name, own.device.name)
    device = own.device if own and is_named else load_device(find_device_alias(hardware))
    if own and device.name == own.device.name and _joins(own, devices):
        device, network = own.device, own.network
    else:
        network = load_network(device.network)
    levels = list(network.levels)
    node = _optional(row, "gpus_per_node")
    inside = [prod(level.size for level in levels[: depth + 1]) for depth in range(len(levels))]
    if node and node not in inside and 0 < levels[0].size <= 16:
        levels[0] = replace(levels[0], size=node)
    per_node = interconnect_bytes_per_s(_text(row, "interconnect"))
    if per_node and len(levels) > 1:
        levels[1] = replace(levels[1], bytes_per_s=per_node / (levels[0].size or 1))
    return Cluster(
        name=hardware,
        device=device,
        network=replace(network, levels=tuple(levels)),
        count=devices,
    )


def interconnect_bytes_per_s(text: str) -> float:
    """Bandwidth out of one node that a description states (`8x200Gb/s HDR IB`, `1600 Gbps/node`), or 0."""
    many = re.search(r"(\d{1,6})\s*x\s*(\d{1,6})\s*G(?:b/s|bps|bit)", text)
    if many:
        return int(many[1]) * int(many[2]) * 1e9 / 8
    one = re.search(r"(\d{1,6})\s*G(?:b/s|bps)[^,;]*(?:per |/)\s*node", text)
    return int(one[1]) * 1e9 / 8 if one else 0.0


def _graph(row: Row) -> Graph:
    key = tuple(_text(row, name) for name in ("model", "params_b", "layers", "hidden", "ffn_hidden", "heads",
                "kv_heads", "vocab", "seq_len", "experts", "topk", "gated_ffn", "framework", "moe_layers",
                "shared_experts"))  # fmt: skip
    return _graph_of(key, _attention(row) == "unfused")


@cache
def _graph_of(key: tuple[str, ...], dropout: bool) -> Graph:
    names = ("model", "params_b", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "seq_len",
             "experts", "topk", "gated_ffn", "framework", "moe_layers", "shared_experts")  # fmt: skip
    row = dict(zip(names, key, strict=True))
    known = _catalog_architecture(row)
    if known is not None:
        return build_graph(known)
    gated = bool(row["gated_ffn"]) and _flag("gated_ffn", row["gated_ffn"].lower())
    base = Architecture(
        name=row["model"] or "model",
        layers=_whole(row, "layers"),
        hidden=_whole(row, "hidden"),
        heads=_whole(row, "heads"),
        kv_heads=_optional(row, "kv_heads"),
        head_dim=_head_dim(row),
        ffn=0 if _optional(row, "experts") else _optional(row, "ffn_hidden"),
        gated=gated,
        vocab=_optional(row, "vocab") or 50304,
        norm="rms" if gated else "layer",
        qkv_bias=not gated,
        output_bias=not gated,
        mlp_bias=not gated,
        positions=0 if gated else _whole(row, "seq_len"),
        dropout=dropout and not gated,
        experts=_optional(row, "experts"),
        top_k=_optional(row, "topk"),
        expert_ffn=_optional(row, "ffn_hidden") if _optional(row, "experts") else 0,
        **_expert_layers(row),
    )
    return _nearest(base, _number(row, "params_b"))


class _ExpertLayers(TypedDict, total=False):
    shared_experts: int
    moe_every: int
    first_dense: int


def _expert_layers(row: Row) -> _ExpertLayers:
    """Which layers have experts, where a row states how many: every nth, or all after the first few."""
    layers, routed = _whole(row, "layers"), _optional(row, "moe_layers")
    if not _optional(row, "experts"):
        return {}
    found: _ExpertLayers = {"shared_experts": _optional(row, "shared_experts")}
    if not 0 < routed < layers:
        return found
    if layers % routed == 0:
        found["moe_every"] = layers // routed
    else:
        found["first_dense"] = layers - routed
    return found


def _head_dim(row: Row) -> int:
    """0, to be derived, unless the hidden size does not divide by the heads."""
    hidden, heads = _whole(row, "hidden"), _whole(row, "heads")
    return 0 if hidden % heads == 0 else max(round(hidden / heads), 1)


def _nearest(base: Architecture, billions: float | None) -> Graph:
    """The model with its embedding tied or not, whichever comes nearer to the stated size."""
    tied, untied = (build_graph(replace(base, tied=tied)) for tied in (True, False))
    if billions is None:
        return untied
    return min((tied, untied), key=lambda graph: abs(parameters(graph) - billions * 1e9))


def _catalog_architecture(row: Row) -> Architecture | None:
    """A model of the catalog, if the row names one and agrees with it."""
    name = re.sub(r"\s*\(.*?\)", "", row["model"]).lower().replace("_", "-").replace(" ", "-")
    known = _named_model(name) or _named_model(re.sub(r"-[0-9.]+b$", "", name))
    if known is None:
        return None
    stated = (
        _optional(row, "layers"),
        _optional(row, "hidden"),
        _optional(row, "heads"),
        _optional(row, "vocab"),
    )
    return known if stated == (known.layers, known.hidden, known.heads, known.vocab) else None


def _named_model(name: str) -> Architecture | None:
    try:
        return load_model(name)
    except TrainwrightError:
        return None
