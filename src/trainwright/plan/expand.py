"""From a strategy's knobs to a plan: what dp, tp, pp and the others mean as transforms, assigns and orders."""

from collections.abc import Iterator, Sequence
from math import gcd

from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph, Op
from trainwright.plan.plan import (
    Assign,
    Offload,
    Order,
    Plan,
    Recompute,
    Replicate,
    Shard,
    Split,
    Stage,
    Stream,
    Transform,
)
from trainwright.plan.rules import effect
from trainwright.plan.schedules import build_schedule
from trainwright.plan.select import NOTHING, layer_range
from trainwright.plan.strategy import Strategy

Axis = tuple[str, int]  # the dim that is split ("" for copies), and into how many

# What tensor parallelism splits in each region.
_TENSOR_DIMS = {"attention": "heads", "ffn": "ffn", "shared": "shared_ffn", "vocab": "vocab"}
_SCHEDULES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved", "zb": "zb-h1"}


def expand(
    strategy: Strategy, graph: Graph, global_batch: int, *, fused: bool = True, balanced: bool = False
) -> Plan:
    """The plan of a strategy; `fused` is whether attention is, `balanced` whether stages are cut by work."""
    per_round = strategy.dp * strategy.micro_batch
    if global_batch % per_round:
        raise BadInput(
            f'strategy "{strategy}": batch', global_batch, f"does not divide by dp·mb = {per_round}",
            "change the batch, dp or mb",
        )  # fmt: skip
    instances = wire(graph)
    microbatches = global_batch // per_round
    layers = stage_layers(strategy, instances, graph, balanced=balanced)
    return Plan(
        name=str(strategy),
        devices=strategy.devices,
        batch=per_round,
        microbatches=microbatches,
        precision=strategy.precision,
        overlap=strategy.overlap,
        transforms=(
            *split_transforms(strategy, instances),
            *_state_transforms(strategy, instances),
            *_memory_transforms(strategy, instances, layers, fused=fused),
        ),
    ) | pipeline(strategy, instances, layers, microbatches)


def split_transforms(strategy: Strategy, instances: Sequence[Instance]) -> Iterator[Transform]:
    """The splits of all operators, those of equal ones together."""
    together: dict[tuple[Axis, ...], list[str]] = {}
    said: dict[str, set[tuple[Axis, ...]]] = {}
    axes = {id(each.op): op_axes(strategy, each.op) for each in instances}
    for each in instances:
        said.setdefault(each.op.name, set()).add(axes[id(each.op)])
    for each in instances:
        plain = len(said[each.op.name]) == 1
        name = f"*/{each.op.name}" if plain else f"{each.block}/{each.op.name}"
        names = together.setdefault(axes[id(each.op)], [])
        if name not in names:
            names.append(name)
    for axes_, names in together.items():
        ops = "*" if len(together) == 1 else ",".join(names)
        for dim, parts in axes_:
            yield Split(ops=ops, dim=dim, parts=parts) if dim else Replicate(ops=ops, parts=parts)


def op_axes(strategy: Strategy, op: Op) -> tuple[Axis, ...]:
    """How one operator is split over the devices of a stage, outermost first."""
    if op.region == "experts" and op.kind != "permute":
        wanted = _expert_axes(strategy)
    else:
        inner = _TENSOR_DIMS.get(op.region, "seq" if strategy.sp or op.region == "experts" else "")
        wanted = (("batch", strategy.dp), ("seq", strategy.cp), (inner, strategy.tp))
    legal = ((dim if dim and effect(op, dim) in ("shards", "sums") else "", n) for dim, n in wanted)
    return tuple((dim, parts) for dim, parts in legal if parts > 1)


def _expert_axes(strategy: Strategy) -> tuple[Axis, ...]:
    """Experts re-use the devices of a stage: copies of experts outermost, then experts, then their width."""
    copies = strategy.dp * strategy.cp * strategy.tp // (strategy.ep * strategy.etp)
    samples = gcd(copies, strategy.dp * strategy.micro_batch)
    return (
        ("batch", samples), ("seq", copies // samples), ("experts", strategy.ep), ("expert_ffn", strategy.etp)
    )  # fmt: skip


def _state_transforms(strategy: Strategy, instances: Sequence[Instance]) -> Iterator[Transform]:
    experts = any(each.op.region == "experts" for each in instances)
    for stage, what in ((3, "weights"), (2, "gradients"), (1, "optimizer")):
        if strategy.zero < stage:
            continue
        yield Shard(ops="*", what=what, ranks=strategy.shard)  # type: ignore[arg-type]
        if experts and strategy.shard:
            ranks = max(strategy.shard * strategy.tp // (strategy.ep * strategy.etp), 1)
            yield Shard(ops="@experts", what=what, ranks=ranks)  # type: ignore[arg-type]


def _memory_transforms(
    strategy: Strategy, instances: Sequence[Instance], layers: Sequence[Sequence[str]], *, fused: bool
) -> Iterator[Transform]:
    blocks = _block_pattern([name for stage in layers for name in stage])
    if strategy.recompute == "full":
        chosen = blocks
        if strategy.recompute_layers:
            rows = _rows(layers, strategy)
            chosen = _block_pattern([name for row in rows for name in row[: strategy.recompute_layers]])
        yield Recompute(ops=chosen)
    elif strategy.recompute == "selective":
        kinds = ("norm", "elementwise") if fused else ("attention",)
        present = {each.op.kind for each in instances if each.layer is not None}
        terms = [f"{block}/%{kind}" for kind in kinds if kind in present for block in blocks.split(",")]
        if terms:
            yield Recompute(ops=",".join(terms))
    if strategy.offload in ("optimizer", "both"):
        yield Offload(ops="*", what="optimizer")
    if strategy.offload in ("activations", "both"):
        yield Offload(ops=blocks, what="activations")
    if strategy.cp > 1 and strategy.cp_kind == "ring":
        yield Stream(ops="*/%attention")


def stage_layers(
    strategy: Strategy, instances: Sequence[Instance], graph: Graph, *, balanced: bool
) -> list[list[str]]:
    """The names of the layers on each stage (chunk), in order."""
    names = list(dict.fromkeys(each.block for each in instances if each.layer is not None))
    pp, vpp = strategy.pp, strategy.vpp
    counts = _balanced_counts(len(names), pp, graph) if balanced else _even_counts(len(names), pp, vpp)
    chunks = [[counts[row] // vpp + (chunk < counts[row] % vpp) for row in range(pp)] for chunk in range(vpp)]
    result: list[list[str]] = []
    at = 0
    for count in (count for chunk in chunks for count in chunk):
        result.append(names[at : at + count])
        at += count
    return result


def _even_counts(layers: int, pp: int, vpp: int) -> list[int]:
    """Layers of each row: equal; or equal with both ends counted as layers; else the middle takes the rest."""
    if pp > 2 and (layers + 2) % (pp * vpp) == 0 and layers % (pp * vpp):
        middle = (layers + 2) // pp
        return [middle - 1, *[middle] * (pp - 2), middle - 1]
    even, rest = divmod(layers, pp)
    order = [*range(1, pp - 1), 0, pp - 1] if pp > 1 else [0]
    more = set(order[:rest])
    return [even + (row in more) for row in range(pp)]


def _balanced_counts(layers: int, pp: int, graph: Graph) -> list[int]:
    """Layers of each row where stages are cut by work and the head counts as many layers as it has weights."""
    from trainwright.model.graph import block_parameters, is_layer

    body = [s for s in graph.segments if is_layer(s.block)]
    mean = sum(s.count * block_parameters(s.block, graph) for s in body) / layers
    head = sum(block_parameters(s.block, graph) for s in graph.segments if s.block.name.endswith("head"))
    most = min(-(-(layers + head / mean) // pp), layers)
    counts = [min(int(most), max(layers - int(most) * row, 0)) for row in range(pp)]
    counts[-1] += layers - sum(counts)
    return counts


def _rows(layers: Sequence[Sequence[str]], strategy: Strategy) -> list[list[str]]:
    """The layers of each row, its chunks together."""
    return [
        [name for chunk in range(strategy.vpp) for name in layers[chunk * strategy.pp + row]]
        for row in range(strategy.pp)
    ]


def pipeline(
    strategy: Strategy, instances: Sequence[Instance], layers: Sequence[Sequence[str]], microbatches: int
) -> Plan:
    """Stages, their devices and their order."""
    if strategy.pp == 1:
        return Plan()
    options = {"vpp": strategy.vpp} if strategy.schedule == "interleaved" else {}
    if strategy.vpp > 1 and strategy.schedule != "interleaved":
        raise BadInput(
            f'strategy "{strategy}"', f"vpp{strategy.vpp}", "goes with the interleaved schedule", "use both or none"
        )
    schedule = build_schedule(_SCHEDULES[strategy.schedule], strategy.pp, microbatches, **options)
    per_row = strategy.devices // strategy.pp
    rows = [tuple(range(row * per_row, (row + 1) * per_row)) for row in range(strategy.pp)]
    stages = stage_patterns(instances, layers)
    return Plan(
        stages=tuple(Stage(ops=ops) for ops in stages),
        assigns=tuple(
            Assign(ops=ops, devices=rows[schedule.routes[0][number]]) for number, ops in enumerate(stages)
            if ops != NOTHING
        ),
        orders=tuple(
            Order(devices=rows[row], actions=actions) for row, actions in enumerate(schedule.rows)
        ),
    )


def stage_patterns(instances: Sequence[Instance], layers: Sequence[Sequence[str]]) -> list[str]:
    """The operators of each stage: its layers, and the ends of the model beside the layers they belong to."""
    home = {name: number for number, names in enumerate(layers) for name in names}
    blocks = list(dict.fromkeys(each.block for each in instances))
    for name in blocks:
        if name not in home:
            home[name] = 0 if "embedding" in name or name.endswith("encoder.end") else len(layers) - 1
    result = []
    for number in range(len(layers)):
        mine = [name for name in blocks if home[name] == number]
        result.append(_block_pattern(mine) or NOTHING)
    return result


def _block_pattern(names: Sequence[str]) -> str:
    numbered: dict[str, list[int]] = {}
    plain: list[str] = []
    for name in names:
        stem, _, number = name.rpartition(".")
        if stem and number.isdecimal():
            numbered.setdefault(stem, []).append(int(number))
        else:
            plain.append(name)
    return ",".join([*plain, *(layer_range(sorted(each), stem) for stem, each in numbered.items())])
