"""From a strategy's knobs to a plan: what dp, tp, pp and the others mean as its three parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from math import gcd

from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph, Op
from trainwright.plan.mapping import ORDERS
from trainwright.plan.plan import Offload, Plan, Recompute, Replicate, Shard, Split, Stream, Transform
from trainwright.plan.recompute_modules import Results, freed_results
from trainwright.plan.rules import effect
from trainwright.plan.schedules import EVERY_ROW, Schedule
from trainwright.plan.stages import (
    Staging,
    balanced_counts,
    block_pattern,
    cut,
    even_counts,
    layer_names,
    op_pattern,
    place_schedule,
    shared_patterns,
    stage_counts,
    stage_patterns,
)
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, Strategy

Axis = tuple[str, int]  # the dim that is split ("" for copies), and into how many
Axes = Callable[[Instance], tuple[Axis, ...]]  # how an operator is split over its devices, outermost first

# What tensor parallelism splits in each region.
_TENSOR_DIMS = {"attention": "heads", "ffn": "ffn", "shared": "shared_ffn", "vocab": "vocab"}
_SCHEDULES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved", "zb": "zb-h1"}


def expand(
    strategy: Strategy,
    graph: Graph,
    global_batch: int,
    *,
    balanced: bool = False,
    staging: Staging | None = None,
    axes: Axes | None = None,
) -> Plan:
    """The plan of a strategy; `balanced` is whether stages are cut by work.

    `staging` and `axes` go before what the strategy says of its schedule and of the splits of operators.
    """
    instances = wire(graph)
    microbatches = count_microbatches(strategy, global_batch)
    staging = _recycled(staging or strategy_staging(strategy), graph, strategy.pp)
    schedule = staging.build(strategy.pp, microbatches)
    layers = stage_layers(graph, instances, schedule, staging, balanced=balanced)
    shared = EVERY_ROW in schedule.routes[0]
    transforms = (
        *split_transforms(axes or strategy_axes(strategy, shared=shared), instances),
        *_state_transforms(strategy, instances),
        *_memory_transforms(strategy, instances, row_layers(schedule, layers)),
    )
    plan = frame(strategy, microbatches, transforms)
    if strategy.pp == 1:
        return plan
    stages = (shared_patterns if shared else stage_patterns)(instances, layers)
    return plan | place_schedule(schedule, stages, pipeline_rows(strategy), strategy.dp * strategy.cp)


def count_microbatches(strategy: Strategy, global_batch: int) -> int:
    """Microbatches of a step."""
    per_round = strategy.dp * strategy.micro_batch
    if global_batch % per_round:
        raise BadInput(
            f'strategy "{strategy}": batch', global_batch, f"does not divide by dp·mb = {per_round}",
            "change the batch, dp or mb",
        )  # fmt: skip
    return global_batch // per_round


def frame(strategy: Strategy, microbatches: int, transforms: Sequence[Transform]) -> Plan:
    """The plan of a strategy without a pipeline."""
    return Plan(
        name=str(strategy),
        devices=strategy.devices,
        batch=strategy.dp * strategy.micro_batch,
        microbatches=microbatches,
        precision=strategy.precision,
        overlap=strategy.overlap,
        transforms=tuple(transforms),
        mapping=()
        if strategy.order == ORDERS[0]
        else tuple((axis, getattr(strategy, axis)) for axis in strategy.order.split("-")),
    )


def strategy_staging(strategy: Strategy) -> Staging:
    """The schedule that a strategy names."""
    if strategy.vpp > 1 and strategy.schedule != "interleaved":
        raise BadInput(
            f'strategy "{strategy}"', f"vpp{strategy.vpp}", "goes with the interleaved schedule",
            "use both or none",
        )  # fmt: skip
    options = {"vpp": strategy.vpp} if strategy.schedule == "interleaved" else {}
    return Staging(schedule=_SCHEDULES[strategy.schedule], options=options)


def _recycled(staging: Staging, graph: Graph, pp: int) -> Staging:
    """The schedule with the forwards without gradient of a model that recycles."""
    if graph.passes == 1 or pp == 1 or staging.schedule == "3f1b":
        return staging
    if staging.schedule != "1f1b":
        raise BadInput(
            f'schedule "{staging.schedule}"', graph.name, f"the model has {graph.passes} forwards a step",
            "use 1f1b, which becomes 3f1b",
        )  # fmt: skip
    return replace(staging, schedule="3f1b", options={"passes": graph.passes})


def stage_layers(
    graph: Graph,
    instances: Sequence[Instance],
    schedule: Schedule,
    staging: Staging,
    *,
    balanced: bool = False,
) -> list[list[str]]:
    """The names of the layers of each stage, in order; stages of every row have none."""
    names, route, pp = layer_names(instances), schedule.routes[0], len(schedule.rows)
    if staging.counts:
        stages = sum(row != EVERY_ROW for row in route)
        if len(staging.counts) != stages:
            raise BadInput(
                "counts", ":".join(map(str, staging.counts)),
                f"{staging.schedule} on {pp} rows has {stages} stages", "give a number of layers for each",
            )  # fmt: skip
        return cut(names, staging.counts)
    vpp = max(sum(row == each for each in route) for row in range(pp))
    rows = balanced_counts(len(names), pp, graph) if balanced else even_counts(len(names), pp, vpp)
    return cut(names, stage_counts(rows, route))


def row_layers(schedule: Schedule, layers: Sequence[Sequence[str]]) -> list[list[str]]:
    """The layers of each row, its chunks together."""
    route = [row for row in schedule.routes[0] if row != EVERY_ROW]
    return [
        [name for names, at in zip(layers, route, strict=True) if at == row for name in names]
        for row in range(len(schedule.rows))
    ]


def pipeline_rows(strategy: Strategy) -> list[tuple[int, ...]]:
    """The devices of each row."""
    per_row = strategy.devices // strategy.pp
    return [tuple(range(row * per_row, (row + 1) * per_row)) for row in range(strategy.pp)]


def strategy_axes(strategy: Strategy, *, shared: bool = False) -> Axes:
    """How a strategy splits operators; with `shared`, vocabularies over the devices of all rows."""
    known: dict[int, tuple[Axis, ...]] = {}
    of_op = _exchanged_axes if strategy.cp_kind == "ulysses" else op_axes
    everywhere = replace(strategy, tp=strategy.tp * strategy.pp)

    def axes(instance: Instance) -> tuple[Axis, ...]:
        if id(instance.op) not in known:
            wide = shared and instance.op.region == "vocab"
            known[id(instance.op)] = of_op(everywhere if wide else strategy, instance.op)
        return known[id(instance.op)]

    return axes


def split_transforms(axes: Axes, instances: Sequence[Instance]) -> Iterator[Transform]:
    """The splits of all operators, those of equal ones together."""
    together: dict[tuple[Axis, ...], dict[str, list[str]]] = {}
    said: dict[str, set[tuple[Axis, ...]]] = {}
    for each in instances:
        said.setdefault(each.op.name, set()).add(axes(each))
    for each in instances:
        plain = len(said[each.op.name]) == 1
        blocks = together.setdefault(axes(each), {}).setdefault(each.op.name, [])
        if not plain or not blocks:
            blocks.append("*" if plain else each.block)
    for axes_, ops in together.items():
        terms = [f"{block}/{op}" for op, blocks in ops.items() for block in block_pattern(blocks).split(",")]
        chosen = "*" if len(together) == 1 else ",".join(terms)
        for dim, parts in axes_:
            yield Split(ops=chosen, dim=dim, parts=parts) if dim else Replicate(ops=chosen, parts=parts)


def op_axes(strategy: Strategy, op: Op) -> tuple[Axis, ...]:
    """How one operator is split over the devices of a stage, outermost first."""
    if op.region == "experts" and op.kind != "permute":
        wanted = _expert_axes(strategy)
    else:
        inner = _TENSOR_DIMS.get(op.region, "seq" if strategy.sp or op.region == "experts" else "")
        wanted = (("batch", strategy.dp), ("seq", strategy.cp), (inner, strategy.tp))
    legal = ((dim if dim and effect(op, dim) in ("shards", "sums") else "", n) for dim, n in wanted)
    return tuple((dim, parts) for dim, parts in legal if parts > 1)


def _exchanged_axes(strategy: Strategy, op: Op) -> tuple[Axis, ...]:
    """How Ulysses splits an operator: attention on heads, where context parallelism splits others on tokens.

    Tensor parallelism is outside context parallelism, so that heads are dealt twice in one order.
    """
    by_dim = op_axes(strategy, op)
    if op.region == "experts":
        return by_dim
    found = [dim for dim, parts in by_dim if dim not in ("", "batch", "seq") and parts > 1]
    inner = (found[0] if found else "seq" if strategy.sp else "", strategy.tp)
    tokens = ("heads" if op.kind == "attention" else _legal_dim(op, "seq"), strategy.cp)
    wanted = ((_legal_dim(op, "batch"), strategy.dp), inner, tokens)
    return tuple((dim, parts) for dim, parts in wanted if parts > 1)


def _legal_dim(op: Op, dim: str) -> str:
    return dim if effect(op, dim) in ("shards", "sums") else ""


def _expert_axes(strategy: Strategy) -> tuple[Axis, ...]:
    """Experts re-use the devices of a stage: copies of experts outermost, then experts, then their width."""
    copies = strategy.dp * strategy.cp * strategy.tp // (strategy.ep * strategy.etp)
    samples = gcd(copies, strategy.dp)  # as tokens are split elsewhere
    return (
        ("batch", samples), ("seq", copies // samples), ("experts", strategy.ep), ("expert_ffn", strategy.etp)
    )  # fmt: skip


def module_transforms(recompute: str, instances: Sequence[Instance]) -> Iterator[Recompute]:
    """What a set of modules runs again of the layers among some operators."""
    together: dict[tuple[str, ...] | None, list[Instance]] = {}
    for each, results in recomputed_instances(recompute, instances):
        made = [tensor.name for tensor in (each.op.output, *each.op.extra_outputs)]
        some = tuple(name for name in made if name in results)
        together.setdefault(None if len(some) == len(made) else some, []).append(each)
    for key, chosen in together.items():
        yield Recompute(ops=op_pattern(chosen), results=key)


def recomputed_instances(
    recompute: str, instances: Sequence[Instance]
) -> Iterator[tuple[Instance, frozenset[str]]]:
    """The operators of layers that a set of modules runs again, with the results that it frees of each."""
    known: dict[tuple[int, ...], Results] = {}
    for _, block in groupby(instances, key=lambda each: each.block):
        listed = list(block)
        if listed[0].layer is None:
            continue
        key = tuple(id(each.op) for each in listed)
        found = known.get(key)
        if found is None:
            found = known[key] = freed_results([each.op for each in listed], recompute)
        yield from ((each, found[each.op.name]) for each in listed if each.op.name in found)


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
    strategy: Strategy, instances: Sequence[Instance], rows: Sequence[Sequence[str]]
) -> Iterator[Transform]:
    if strategy.recompute == "full":
        most = strategy.recompute_layers or None
        yield Recompute(ops=block_pattern([name for row in rows for name in row[:most]]))
    else:
        yield from module_transforms(strategy.recompute, instances)
    if strategy.offload in ("optimizer", "both"):
        yield Offload(ops="*", what="optimizer")
    if strategy.offload in ACTIVATION_OFFLOADS:
        most = strategy.offload_layers or None
        longest = max(map(len, rows), default=0)
        if strategy.offload_layers > longest:
            thing, rule = f'strategy "{strategy}": offload_layers', f"a stage has {longest} layers"
            raise BadInput(thing, strategy.offload_layers, rule, "use fewer")
        yield Offload(ops=block_pattern([name for row in rows for name in row[:most]]), what="activations")
    attends = any(each.op.kind == "attention" for each in instances)  # products and a softmax do not
    if strategy.cp > 1 and strategy.cp_kind == "ring" and attends:
        yield Stream(ops="*/%attention")
