"""A model as training algorithms know it, and the part of it that a subnetwork is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwright.algorithm.anatomy import Anatomy, Axis, Weight
from trainwright.algorithm.partition import Cut
from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph, Segment, Tensor, dim_sizes, segment_sizes
from trainwright.program.reference import weight_key

HEADS, FFN = "heads", "ffn"  # groups of units, after the name of their block


def build_anatomy(graph: Graph, seq: int, instances: Sequence[Instance] = ()) -> Anatomy:
    """Weights under the keys that checkpoints have; groups `BLOCK/heads` and `BLOCK/ffn`.

    Attention heads with the keys that they share are one unit, as is a feed-forward neuron.
    """
    found: dict[str, Weight] = {}
    units: dict[str, int] = {}
    flops: dict[str, int] = {}
    for instance in instances or wire(graph):
        sizes = dim_sizes(graph, graph.segments[instance.segment], 1, seq)
        for weight in instance.op.weights:
            built = _weight(graph, instance, weight, sizes, units)
            tied = found.setdefault(built.name, built)
            if built.product and not tied.product:  # looked up at one end, multiplied at the other
                found[built.name] = replace(tied, product=True)
        if instance.op.kind == "attention" and "heads" in sizes and "kv_heads" in sizes:
            each = sizes["heads"] // sizes["kv_heads"]
            flops[f"{instance.block}/{HEADS}"] = 2 * each * seq * seq * sizes["head_dim"]
    flops = {group: each for group, each in flops.items() if group in units}
    return Anatomy(weights=tuple(found.values()), units=units, positions=seq, unit_flops=flops)


def _weight(
    graph: Graph, instance: Instance, weight: Tensor, sizes: Mapping[str, int], units: dict[str, int]
) -> Weight:
    """A weight with the units that lie along its dims, which are noted."""
    axes: list[Axis | None] = []
    for dim in weight.dims:
        axis = _axis(instance, dim, sizes) if len(weight.dims) > 1 or dim == "ffn" else None
        axes.append(axis)
        if axis:
            units[axis.group] = sizes["kv_heads" if "heads" in dim else dim]
    reads = [
        axis.group
        for axis, dim in zip(axes, weight.dims, strict=True)
        if axis and dim in instance.op.contracted
    ]
    return Weight(
        name=weight_key(graph, instance, weight), sizes=tuple(sizes[dim] for dim in weight.dims),
        axes=tuple(axes), reads=reads[0] if reads else "", product=instance.op.kind == "matmul",
    )  # fmt: skip


def _axis(instance: Instance, dim: str, sizes: Mapping[str, int]) -> Axis | None:
    """The units that lie along a dim of a weight; heads that share keys are one unit."""
    if dim == "ffn":
        return Axis(group=f"{instance.block}/{FFN}")
    if dim == "kv_heads":
        return Axis(group=f"{instance.block}/{HEADS}")
    if dim == "heads" and "kv_heads" in sizes:
        return Axis(group=f"{instance.block}/{HEADS}", width=sizes["heads"] // sizes["kv_heads"])
    return None


def check_dense(graph: Graph) -> None:
    """Raise for a model whose parts no algorithm here can divide or run alone."""
    if graph.passes > 1 or any(each.op.kind == "grouped_matmul" for each in wire(graph)):
        rule = "has experts or reads its own output, which algorithms cannot train"
        raise BadInput("model", graph.name, rule, "leave out --algorithm, or use a dense model")


def slice_graph(graph: Graph, cut: Cut) -> Graph:
    """What a worker of subnetworks trains: of every group as many units as the fullest worker has."""
    held = {
        group: max(cut.window(group, rank)[1] for rank in range(cut.workers)) for group in cut.anatomy.units
    }
    blocks: dict[int, str] = {}
    for instance in wire(graph):
        blocks.setdefault(instance.segment, instance.block)
    segments = tuple(
        _sliced(graph, segment, held, blocks[number]) for number, segment in enumerate(graph.segments)
    )
    return replace(graph, name=f"{graph.name}, a slice", segments=segments)


def _sliced(graph: Graph, segment: Segment, held: Mapping[str, int], block: str) -> Segment:
    """A segment whose blocks hold as many units as the first of them."""
    sizes = segment_sizes(graph, segment)
    changed: dict[str, int] = {}
    heads, ffn = held.get(f"{block}/{HEADS}"), held.get(f"{block}/{FFN}")
    if heads is not None:
        changed |= {"kv_heads": heads, "heads": heads * (sizes["heads"] // sizes["kv_heads"])}
    if ffn is not None:
        changed |= {"ffn": ffn}
    return replace(segment, sizes={**segment.sizes, **changed})
