"""Lowering of what keeps copies of weights equal: gathers, reductions, updates."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trainwright.cost.operators import ROW_STATE_BYTES
from trainwright.cost.state import StateWidths, host_update_bytes_per_s, state_widths
from trainwright.cost.state import update_s as update_seconds
from trainwright.plan.plan import Shard
from trainwright.program.builder import Builder
from trainwright.program.bundles import Bundle, Groups
from trainwright.program.layout import Mesh, build_layout
from trainwright.program.step import STATE_GRADIENT, Step, Value
from trainwright.program.values import Shape


def widths(builder: Builder) -> StateWidths:
    """Bytes per parameter of a setting's stack at its precision."""
    setting = builder.setting
    return state_widths(setting.stack, setting.cluster.device.family, setting.precision)


def bundle_optimizer_bytes(builder: Builder, bundle: Bundle) -> float:
    """Optimizer state per parameter of a bundle: of a layer, or of an end."""
    width = widths(builder)
    return width.optimizer if _is_layer(builder, bundle) else width.end_optimizer


def gather_weights(
    builder: Builder, listed: Sequence[Bundle], phase: str, after: Sequence[int], passes: int = 0
) -> tuple[Value, ...]:
    """ZeRO-3: bring a block's weights together before it is used; the values to read them as."""
    values: list[Value] = []
    for number, ((group, *_others), together) in enumerate(_by_group(listed, "weights").items()):
        name = f"weights/{together[0].block}/{number}/{phase}{passes}"
        size = widths(builder).weight * sum(bundle.elements for bundle in together)
        value = _state_value(builder, name, together[0].mesh, size)
        seconds = builder.network.seconds("all_gather", group, size)
        step = _data_step(builder, together[0], name, "all_gather", seconds, size)
        step = _on(step, together, together[0].sharding("weights"))
        builder.add(step.set(phase=phase, writes=(value,), after=tuple(after), passes=passes))
        values.append(value)
    return tuple(values)


def scatter_gradients(builder: Builder, listed: Sequence[Bundle]) -> tuple[int, ...]:
    """ZeRO-2 and 3: the steps that sum a block's gradients after each microbatch, in shards."""
    steps = []
    trained = [bundle for bundle in listed if bundle.trained]
    for (group, *_others), together in _by_group(trained, "gradients").items():
        size = widths(builder).reduced * sum(bundle.elements for bundle in together)
        seconds = builder.network.seconds("reduce_scatter", group, size)
        name = f"gradients/{together[0].block}"
        step = _data_step(builder, together[0], name, "reduce_scatter", seconds, size)
        reads = tuple(value for bundle in together for value in _gradients(builder, bundle))
        step = _on(step, together, together[0].sharding("gradients"))
        steps.append(builder.add(step.set(phase="W", reads=reads, lane="scatter")))
    return tuple(steps)


def _by_group(listed: Sequence[Bundle], what: str) -> dict[Groups, list[Bundle]]:
    """Bundles by the devices that share their state; those that no other device shares are left out."""
    found: dict[Groups, list[Bundle]] = {}
    for bundle in listed:
        if len(bundle.sharded(what)) > 1:
            found.setdefault(bundle.sharding(what), []).append(bundle)
    return found


def _on(step: Step, together: Sequence[Bundle], groups: Groups) -> Step:
    """The step, on the weights of some bundles."""
    return step.set(state=tuple(weight for bundle in together for weight in bundle.weights), groups=groups)


def _data_step(builder: Builder, bundle: Bundle, name: str, kind: str, seconds: float, size: float) -> Step:
    stack = builder.setting.stack
    overlap = stack.dp_overlap * builder.plan.overlap
    return Step(
        name=name, phase="S", kind=kind, cause="dp", mesh=bundle.mesh, stage=bundle.stage, block=bundle.block,
        seconds=seconds, whole_s=seconds, blocking=1.0 - overlap, slows=stack.interference, lane="data",
        bytes=size,
    )  # fmt: skip


def _state_value(builder: Builder, name: str, mesh: Mesh, size: float) -> Value:
    builder.shapes[name] = Shape(dims={}, element_bytes=size, total_bytes=size)
    return Value(name, build_layout(mesh, {}))


def _gradients(builder: Builder, bundle: Bundle) -> tuple[Value, ...]:
    return tuple(
        Value(
            STATE_GRADIENT + builder.instances[index].name,
            builder.layout(index, builder.instances[index].op.output, "written"),
        )
        for index in bundle.instances
    )


def finish_step(builder: Builder, listed: Sequence[Bundle]) -> None:
    """After the last microbatch reduce gradients; before the first gather new weights (ZeRO-1, 2).

    All blocks of a stage are one bucket: its time, latency paid once, is dealt to them by their size, so that
    each starts when its own gradients are there. What blocks of reductions follows all that hides on the same
    devices, as links carry one at a time.
    """
    listed = [bundle for bundle in listed if bundle.trained]
    buckets: dict[tuple[int, Groups, tuple[tuple[str, int], ...]], list[Bundle]] = {}
    for bundle in listed:
        key = (bundle.stage, bundle.groups, tuple(sorted(bundle.shards.items())))
        buckets.setdefault(key, []).append(bundle)
    for bucket in buckets.values():
        _reduce_bucket(builder, bucket, "P")
    last_first = [*reversed(buckets.values())]  # gradients of the last layers are there first
    hidden = [
        (frozenset(bucket[0].mesh.devices), _reduce_bucket(builder, bucket, "S")) for bucket in last_first
    ]
    for bucket in last_first:
        own = frozenset(bucket[0].mesh.devices)
        _reduce_rest(builder, bucket, [piece for where, pieces in hidden if where & own for piece in pieces])
    _first_sums(builder, listed)


def _reduce_bucket(builder: Builder, bucket: Sequence[Bundle], when: str) -> list[int]:
    """The steps of a bucket that hide: before the first microbatch (P), or after the last (S)."""
    return [
        piece
        for kind, cost, share in _reductions(builder, bucket, when)
        for piece in _pieces(builder, bucket, when, kind, cost, share)
    ]


def _reduce_rest(builder: Builder, bucket: Sequence[Bundle], after: Sequence[int]) -> None:
    """What blocks of a bucket after the last microbatch, once all that hides has ended."""
    reads = tuple(value for bundle in bucket for value in _gradients(builder, bundle))
    for kind, cost, share in _reductions(builder, bucket, "S"):
        if share < 1.0:
            builder.add(_rest(builder, bucket, "S", kind, cost, share).set(reads=reads, after=tuple(after)))


def _reductions(
    builder: Builder, bucket: Sequence[Bundle], when: str
) -> Iterator[tuple[str, tuple[float, Groups], float]]:
    """The collectives of a bucket before the first microbatch (P), or after the last (S): which, how long and
    among whom, and what may hide of them.
    """
    total = sum(bundle.elements for bundle in bucket)
    one, width, stack = bucket[0], widths(builder), builder.setting.stack
    if len(one.group) == 1 or not total:
        return
    zero = _zero(one)
    share = (stack.zero_overlap if zero in (1, 2) else stack.dp_overlap) * builder.plan.overlap
    for phase, kind, seconds, groups in _bucket_times(builder, one, total, width):
        if zero in (1, 2) and phase == ("S" if zero == 1 else "P"):
            seconds += stack.zero_layer_s * sum(_is_layer(builder, bundle) for bundle in bucket)
        if phase == when:
            yield kind, (seconds, groups), share


def _pieces(
    builder: Builder,
    bucket: Sequence[Bundle],
    phase: str,
    kind: str,
    cost: tuple[float, Groups],
    share: float,
) -> list[int]:
    """What hides of a collective, block by block; of gathers, after what does not."""
    total = sum(bundle.elements for bundle in bucket)
    first = []
    if phase == "P" and share < 1.0:
        first = [builder.add(_rest(builder, bucket, phase, kind, cost, share))]
    # Weights are needed from the first block on, gradients come from the last one first.
    listed = (bucket if phase == "P" else bucket[::-1]) if share > 0.0 else ()
    found = []
    for bundle in listed:
        made = _piece(builder, bundle, phase, kind, (cost[0] * share * bundle.elements / total, cost[1]))
        found.append(builder.add(made.set(span=(0.0, share), blocking=0.0, after=tuple(first))))
    return found


def _rest(
    builder: Builder,
    bucket: Sequence[Bundle],
    phase: str,
    kind: str,
    cost: tuple[float, Groups],
    share: float,
) -> Step:
    """What blocks of a collective, for all blocks together."""
    made = _piece(builder, bucket[0], phase, kind, (cost[0] * (1.0 - share), cost[1]))
    return _on(made, bucket, cost[1]).set(span=(share, 1.0), blocking=1.0)


def _piece(builder: Builder, bundle: Bundle, phase: str, kind: str, cost: tuple[float, Groups]) -> Step:
    """A part of a collective that takes so long among some groups."""
    what, width, (seconds, groups) = ("weights" if phase == "P" else "gradients"), widths(builder), cost
    size = (width.weight if phase == "P" else width.reduced) * bundle.elements
    made = _data_step(builder, bundle, f"{what}/{bundle.block}", kind, seconds, size)
    reads = () if phase == "P" else _gradients(builder, bundle)
    lane = "data" if phase == "P" else "reduce"
    return _on(made, [bundle], groups).set(phase=phase, lane=lane, reads=reads)


def _bucket_times(
    builder: Builder, one: Bundle, total: float, width: StateWidths
) -> list[tuple[str, str, float, Groups]]:
    """The collectives of a bucket: when, which, how long, among whom."""
    seconds = builder.network.seconds
    sharing, replicas = one.sharded("gradients"), one.replicas("gradients")
    found: list[tuple[str, str, float, Groups]] = []
    if len(sharing) > 1:  # each microbatch has summed and scattered them over these
        if len(replicas) > 1:
            time = seconds("all_reduce", replicas, width.reduced * total / len(sharing))
            found.append(("S", "all_reduce", time, one.copying("gradients")))
        if "weights" not in one.shards:
            time = seconds("all_gather", sharing, width.weight * total)
            found.append(("P", "all_gather", time, one.sharding("gradients")))
    elif "optimizer" in one.shards and "weights" not in one.shards:
        time = seconds("reduce_scatter", one.group, width.reduced * total)
        found.append(("S", "reduce_scatter", time, one.groups))
        found.append(("P", "all_gather", seconds("all_gather", one.group, width.weight * total), one.groups))
    else:
        found.append(("S", "all_reduce", seconds("all_reduce", one.group, width.reduced * total), one.groups))
    return found


def _zero(bundle: Bundle) -> int:
    return (
        3
        if "weights" in bundle.shards
        else 2
        if "gradients" in bundle.shards
        else int("optimizer" in bundle.shards)
    )


def _is_layer(builder: Builder, bundle: Bundle) -> bool:
    return builder.instances[bundle.instances[0]].layer is not None


def _first_sums(builder: Builder, listed: Sequence[Bundle]) -> None:
    """Norms under sequence parallelism: one small sum over the devices that split their tokens, per stage."""
    small: dict[tuple[int, Groups], list[Bundle]] = {}
    for bundle in listed:
        if len(bundle.summed_first) > 1:
            small.setdefault((bundle.stage, bundle.first_groups), []).append(bundle)
    for (_, (group, *_others)), parts in small.items():
        size = widths(builder).reduced * sum(bundle.elements for bundle in parts)
        seconds = builder.network.seconds("all_reduce", group, size)
        step = _data_step(builder, parts[0], "gradients/norms", "all_reduce", seconds, size)
        reads = tuple(value for bundle in parts for value in _gradients(builder, bundle))
        step = _on(step, parts, parts[0].first_groups)
        builder.add(step.set(cause="tp", reads=reads, blocking=1.0))


def state_bytes(builder: Builder, bundle: Bundle) -> Mapping[str, float]:
    """Bytes of state on each device that holds a bundle, and what of it is on the host."""
    width = widths(builder)
    if bundle.rows:
        return {
            "weights": width.weight * bundle.elements,
            "gradients": 0.0,
            "optimizer": ROW_STATE_BYTES * bundle.rows,
        }
    in_layers = width.stored if _shards_optimizer(builder) else width.unsharded
    stored = in_layers if _is_layer(builder, bundle) else width.weight
    weights = stored * bundle.elements / len(bundle.sharded("weights"))
    if not bundle.trained:
        return {"weights": weights, "gradients": 0.0, "optimizer": 0.0}
    optimizer = bundle_optimizer_bytes(builder, bundle)
    return {
        "weights": weights,
        "gradients": width.gradient * bundle.elements / len(bundle.sharded("gradients")),
        "optimizer": optimizer * bundle.elements / len(bundle.sharded("optimizer")),
    }


def _shards_optimizer(builder: Builder) -> bool:
    """Whether a plan shards optimizer state, in groups of any size."""
    return any(isinstance(each, Shard) and each.what == "optimizer" for each in builder.plan.transforms)


def update_s(builder: Builder, listed: Sequence[Bundle]) -> float:
    """The optimizer's time on a device with these bundles: traffic of state, and the way to the host."""
    setting, width = builder.setting, widths(builder)
    device, host = (
        setting.cluster.device,
        setting.cluster.network.host_bytes_per_s * setting.efficiency.host_link,
    )
    host_memory = float(host_update_bytes_per_s(setting.cluster, setting.efficiency))
    total = 0.0
    for bundle in listed:
        if bundle.rows or not bundle.trained:
            continue  # updated in the backward, row by row, or never
        kept = bundle.elements / len(bundle.sharded("optimizer"))
        traffic = 2.0 * bundle_optimizer_bytes(builder, bundle) + 2.0 * width.gradient + width.weight
        local = float(update_seconds(device, setting.efficiency, np.array(kept * traffic)))
        if "optimizer" in bundle.offloads:
            there = max(kept * width.host_traffic / host_memory, local)
            local = there + kept * (width.gradient + width.weight) / host
        total += local
    return total


__all__ = [
    "bundle_optimizer_bytes", "finish_step", "gather_weights", "scatter_gradients", "state_bytes", "update_s",
    "widths",
]  # fmt: skip
