"""Uneven stages: a pipeline whose stages have as many layers as make them equally long."""

from typing import Any

from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph, dim_sizes
from trainwright.model.totals import op_flops
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging, block_homes, layer_names
from trainwright.plan.zoo.counts import best_counts, parse_counts
from trainwright.plan.zoo.structured import REST, fill, structured


def uneven_stages(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    pp: int = REST,
    counts: str = "",
    schedule: str = "1f1b",
    seq: int = 2048,
    **knobs: Any,
) -> Plan:
    """Layers of each stage as given (`7:9:9:7`), or cut by the FLOPs of layers and ends at `seq` tokens."""
    pp = fill(devices, pp=pp, **knobs).pp
    found = parse_counts(counts) or best_counts(layer_flops(graph, seq), pp)
    staging = Staging(schedule=schedule, counts=found)
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)


def layer_flops(graph: Graph, seq: int, *, vocabulary: bool = True) -> list[float]:
    """FLOPs of each layer's forward for one sample; ends, or those without a vocabulary, count beside it."""
    instances = wire(graph)
    names = layer_names(instances)
    homes = block_homes(instances, [[name] for name in names])
    found = [0.0] * len(names)
    for instance in instances:
        if vocabulary or instance.op.region != "vocab":
            found[homes[instance.block]] += _flops(graph, instance, seq)
    return found


def _flops(graph: Graph, instance: Instance, seq: int) -> float:
    return op_flops(instance.op, dim_sizes(graph, graph.segments[instance.segment], 1, seq), causal=True)
