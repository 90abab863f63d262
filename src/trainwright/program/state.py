"""Lowering of what keeps copies of weights equal: gathers, reductions, updates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.cost.state import gradient_sizes, weight_sizes
from trainwright.program.builder import Builder
from trainwright.program.bundles import Bundle
from trainwright.program.layout import Mesh, build_layout
from trainwright.program.step import STATE_GRADIENT, Step, Value
from trainwright.program.values import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Bytes per parameter."""

    weight: float
    optimizer: float
    gradient: float
    reduced: float  # on the wire


def widths(builder: Builder) -> Widths:
    """Bytes per parameter of a setting's stack at its precision."""
    stack, precision = builder.setting.stack, builder.setting.precision
    weight, optimizer = weight_sizes(stack, precision == "fp32")
    kept, sent = gradient_sizes(stack, precision == "fp16")
    return Widths(
        weight=float(weight), optimizer=float(optimizer), gradient=float(kept), reduced=float(sent)
    )


def gather_weights(
    builder: Builder, listed: Sequence[Bundle], phase: str, after: Sequence[int], passes: int = 0
) -> tuple[Value, ...]:
    """ZeRO-3: bring a block's weights together before it is used; the values to read them as."""
    values: list[Value] = []
    for number, bundle in enumerate(listed):
        group = bundle.sharded("weights")
        if len(group) == 1:
            continue
        name = f"weights/{bundle.block}/{number}/{phase}{passes}"
        size = widths(builder).weight * bundle.elements
        value = _state_value(builder, name, bundle.mesh, size)
        seconds = builder.network.seconds("all_gather", group, size)
        builder.add(
            _data_step(builder, bundle, name, "all_gather", seconds, size)
            .set(phase=phase, writes=(value,), after=tuple(after), passes=passes)
        )  # fmt: skip
        values.append(value)
    return tuple(values)


def scatter_gradients(builder: Builder, listed: Sequence[Bundle]) -> None:
    """ZeRO-2 and 3: sum a block's gradients after each microbatch, each device keeping its shard."""
    for bundle in listed:
        group = bundle.sharded("gradients")
        if len(group) == 1:
            continue
        size = widths(builder).reduced * bundle.elements
        seconds = builder.network.seconds("reduce_scatter", group, size)
        step = _data_step(builder, bundle, f"gradients/{bundle.block}", "reduce_scatter", seconds, size)
        builder.add(step.set(phase="W", reads=_gradients(builder, bundle)))


def _data_step(
    builder: Builder, bundle: Bundle, name: str, kind: str, seconds: float, size: float
) -> Step:
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
    """After the last microbatch: reduce gradients, update, and before the first gather new weights (ZeRO-1, 2).

    All blocks of a stage are one bucket: its time, latency paid once, is dealt to them by their size, so that
    each starts when its own gradients are there.
    """
    buckets: dict[tuple[int, tuple[int, ...], tuple[tuple[str, int], ...]], list[Bundle]] = {}
    for bundle in listed:
        key = (bundle.stage, bundle.group, tuple(sorted(bundle.shards.items())))
        buckets.setdefault(key, []).append(bundle)
    for bucket in buckets.values():
        _reduce_bucket(builder, bucket)
    _first_sums(builder, listed)


def _reduce_bucket(builder: Builder, bucket: Sequence[Bundle]) -> None:
    total = sum(bundle.elements for bundle in bucket)
    one, width, stack = bucket[0], widths(builder), builder.setting.stack
    if len(one.group) == 1 or not total:
        return
    zero = _zero(one)
    share = (stack.zero_overlap if zero in (1, 2) else stack.dp_overlap) * builder.plan.overlap
    for phase, kind, seconds in _bucket_times(builder, one, total, width):
        if zero in (1, 2) and phase == ("S" if zero == 1 else "P"):
            seconds += stack.zero_layer_s * sum(_is_layer(builder, bundle) for bundle in bucket)
        _pieces(builder, bucket, phase, kind, seconds, share)


def _pieces(
    builder: Builder, bucket: Sequence[Bundle], phase: str, kind: str, seconds: float, share: float
) -> None:
    """One collective in pieces, block by block: what hides of each, and together what does not."""
    total = sum(bundle.elements for bundle in bucket)
    what, width = ("weights" if phase == "P" else "gradients"), widths(builder)

    def step(bundle: Bundle, part: float, blocking: float, after: Sequence[int]) -> Step:
        size = (width.weight if phase == "P" else width.reduced) * bundle.elements
        made = _data_step(builder, bundle, f"{what}/{bundle.block}", kind, seconds * part, size)
        reads = () if phase == "P" else _gradients(builder, bundle)
        return made.set(phase=phase, blocking=blocking, reads=reads, after=tuple(after))

    first = [builder.add(step(bucket[0], 1.0 - share, 1.0, ()))] if phase == "P" and share < 1.0 else []
    # Weights are needed from the first block on, gradients come from the last one first.
    listed = bucket if phase == "P" else bucket[::-1]
    pieces = [
        builder.add(step(bundle, share * bundle.elements / total, 0.0, first)) for bundle in listed if share > 0.0
    ]
    if phase == "S" and share < 1.0:
        rest = step(bucket[0], 1.0 - share, 1.0, pieces)
        builder.add(rest.set(reads=tuple(value for bundle in bucket for value in _gradients(builder, bundle))))


def _bucket_times(
    builder: Builder, one: Bundle, total: float, width: Widths
) -> list[tuple[str, str, float]]:
    """The collectives of a bucket: when, which, how long."""
    seconds = builder.network.seconds
    if "weights" in one.shards or ("gradients" in one.shards and len(one.replicas("gradients")) > 1):
        replicas, shard = one.replicas("weights"), len(one.sharded("weights"))
        time = seconds("all_reduce", replicas, width.reduced * total / shard) if len(replicas) > 1 else 0.0
        return [("S", "all_reduce", time)] if time else []
    if "gradients" in one.shards:
        return [("P", "all_gather", seconds("all_gather", one.group, width.weight * total))]
    if "optimizer" in one.shards:
        return [
            ("S", "reduce_scatter", seconds("reduce_scatter", one.group, width.reduced * total)),
            ("P", "all_gather", seconds("all_gather", one.group, width.weight * total)),
        ]
    return [("S", "all_reduce", seconds("all_reduce", one.group, width.reduced * total))]


def _zero(bundle: Bundle) -> int:
    return 3 if "weights" in bundle.shards else 2 if "gradients" in bundle.shards else int("optimizer" in bundle.shards)


def _is_layer(builder: Builder, bundle: Bundle) -> bool:
    return builder.instances[bundle.instances[0]].layer is not None


def _first_sums(builder: Builder, listed: Sequence[Bundle]) -> None:
    """Norms under sequence parallelism: one small sum over the devices that split their tokens, per stage."""
    small: dict[tuple[int, tuple[int, ...]], list[Bundle]] = {}
    for bundle in listed:
        if len(bundle.summed_first) > 1:
            small.setdefault((bundle.stage, bundle.summed_first), []).append(bundle)
    for (_, group), parts in small.items():
        size = widths(builder).reduced * sum(bundle.elements for bundle in parts)
        seconds = builder.network.seconds("all_reduce", group, size)
        step = _data_step(builder, parts[0], "gradients/norms", "all_reduce", seconds, size)
        reads = tuple(value for bundle in parts for value in _gradients(builder, bundle))
        builder.add(step.set(cause="tp", reads=reads, blocking=1.0))


def state_bytes(builder: Builder, bundle: Bundle) -> Mapping[str, float]:
    """Bytes of state on each device that holds a bundle, and what of it is on the host."""
    width = widths(builder)
    return {
        "weights": width.weight * bundle.elements / len(bundle.sharded("weights")),
        "gradients": width.gradient * bundle.elements / len(bundle.sharded("gradients")),
        "optimizer": width.optimizer * bundle.elements / len(bundle.sharded("optimizer")),
    }


def update_s(builder: Builder, listed: Sequence[Bundle]) -> float:
    """The optimizer's time on a device with these bundles: traffic of state, and the way to the host."""
    setting, width = builder.setting, widths(builder)
    device, host = setting.cluster.device, setting.cluster.network.host_bytes_per_s * setting.efficiency.host_link
    traffic = 2.0 * width.optimizer + 2.0 * width.gradient + width.weight
    total = 0.0
    for bundle in listed:
        kept = bundle.elements / len(bundle.sharded("optimizer"))
        local = kept * traffic / (device.memory[0].bytes_per_s * setting.efficiency.memory)
        if "optimizer" in bundle.offloads:
            rate = device.memory[1].bytes_per_s if len(device.memory) > 1 else host
            local = max(kept * traffic / rate, local) + kept * (width.gradient + width.weight) / host
        total += local
    return total


__all__ = [
    "Widths", "finish_step", "gather_weights", "scatter_gradients", "state_bytes", "update_s", "widths",
]  # fmt: skip
