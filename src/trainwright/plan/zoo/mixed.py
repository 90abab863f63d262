"""Several freedoms in one plan: a schedule, the layers of each stage, and what each block does again."""

from typing import Any

from trainwright.model.flow import wire
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan, Recompute, Transform
from trainwright.plan.select import select
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.co_shard import serial_splits
from trainwright.plan.zoo.counts import parse_counts
from trainwright.plan.zoo.degrees import degree_axes, parse_degrees
from trainwright.plan.zoo.structured import REST, fill, structured


def mixed(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    pp: int = 1,
    schedule: str = "1f1b",
    counts: str = "",
    again: str = "",
    chunked: str = "",
    chunks: int = 4,
    degrees: str = "",
    **knobs: Any,
) -> Plan:
    """A pipeline of any schedule with `counts` layers a stage; what the flexible search composes.

    `degrees` splits ranges of layers each in its own way over the devices of a stage: `0-3:cp4,4-:tp4sp`.

    `again` are operators that are done again before their backward, `chunked` blocks whose attention and
    feed-forward run in so many `chunks`, one after another; both choose as `layer.0-3`. Together on the
    regions of a block they are co-shard; with only its attention done again, that costs less.
    """
    pp = fill(devices, **(knobs | {"pp": pp})).pp if pp == REST else pp
    options = {"passes": graph.passes} if schedule == "3f1b" else {}
    staging = Staging(schedule=schedule, options=options, counts=parse_counts(counts))
    axes = None
    if degrees:
        layers = parse_degrees(degrees, devices // pp, knobs)
        knobs |= {"tp": layers.widest.tp, "cp": layers.widest.cp, "sp": layers.widest.sp}
        axes = degree_axes(graph, layers)
    plan = structured(graph, devices, batch, pp=pp, staging=staging if pp > 1 else None, axes=axes, **knobs)
    return plan | Plan(transforms=_memory_transforms(graph, again, chunked, chunks))


def _memory_transforms(graph: Graph, again: str, chunked: str, chunks: int) -> tuple[Transform, ...]:
    found: list[Transform] = [Recompute(ops=again)] if again else []
    if chunked:
        instances = wire(graph)
        blocks = {instances[index].block for index in select(instances, chunked)}
        found += serial_splits(instances, blocks, chunks)
    return tuple(found)
