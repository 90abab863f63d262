"""Co-shard: regions of layers in parts that run one after another on the same device, each recomputed."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from trainwright.errors import UnknownName
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan, Recompute, Split, Transform
from trainwright.plan.rules import effect
from trainwright.plan.stages import layer_names, op_pattern
from trainwright.plan.zoo.layers import chosen_layers
from trainwright.plan.zoo.structured import structured

_DIMS = {"attention": "heads", "ffn": "ffn", "shared": "shared_ffn"}  # that a region is cut along


def co_shard(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    chunks: int = 4,
    regions: str = "attention+ffn",
    layers: str = "",
    **knobs: Any,
) -> Plan:
    """Attention by heads, feed-forward by width, in `chunks` parts, on the layers of a range or on all.

    A part's activations live only while it works, so their peak falls by the number of parts, without
    communication. The rest is as the knobs say.
    """
    plan = structured(graph, devices, batch, **knobs)
    instances = wire(graph)
    blocks = set(chosen_layers(layer_names(instances), layers))
    chosen = regions.split("+")
    again = op_pattern(region_ops(instances, blocks, chosen))
    splits = serial_splits(instances, blocks, chunks, chosen)
    return plan | Plan(transforms=(*splits, *([Recompute(ops=again)] if again else [])))


def serial_splits(
    instances: Sequence[Instance], blocks: Collection[str], chunks: int, regions: Sequence[str] = tuple(_DIMS)
) -> Iterator[Transform]:
    """Each region of the blocks in `chunks` parts that run one after another."""
    for region in regions:
        mine = _of_region(instances, blocks, region)
        cut = [each for each in mine if effect(each.op, _DIMS[region]) in ("shards", "sums")]
        if cut and chunks > 1:
            yield Split(ops=op_pattern(cut), dim=_DIMS[region], parts=chunks, serial=True)


def region_ops(
    instances: Sequence[Instance], blocks: Collection[str], regions: Sequence[str] = tuple(_DIMS)
) -> list[Instance]:
    """What is done again where regions run in parts: all of them, and the norms that they read."""
    mine = [each for region in regions for each in _of_region(instances, blocks, region)]
    return [*_norms_before(instances, mine), *mine]


def _of_region(instances: Sequence[Instance], blocks: Collection[str], region: str) -> list[Instance]:
    if region not in _DIMS:
        raise UnknownName("co-shard region", region, _DIMS)
    return [each for each in instances if each.block in blocks and each.op.region == region]


def _norms_before(instances: Sequence[Instance], region: Sequence[Instance]) -> list[Instance]:
    """The norms that regions read: done again once for all of their parts."""
    read = {name for each in region for name in each.inputs}
    return [each for each in instances if each.op.kind == "norm" and not read.isdisjoint(each.outputs)]
