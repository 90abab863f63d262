"""Degrees layer by layer: some layers split one way over the devices, others another way."""

import re
from dataclasses import replace
from typing import Any

from trainwright.errors import BadInput
from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Graph
from trainwright.plan.expand import Axis, op_axes
from trainwright.plan.plan import Plan
from trainwright.plan.stages import block_homes, layer_names
from trainwright.plan.strategy import Strategy
from trainwright.plan.zoo.layers import layer_number, parse_range
from trainwright.plan.zoo.structured import fill, structured

_DEGREES = re.compile(r"(?:(?:tp|cp|dp)\d+)+(?:sp)?$", re.ASCII)
_DEGREE = re.compile(r"(tp|cp|dp)(\d+)", re.ASCII)
_FORM = "write 0-3:tp4dp2,4-:tp2dp4"

Part = tuple[range, Strategy]


def per_layer(graph: Graph, devices: int, batch: int, *, layers: str = "0-:dp1", **knobs: Any) -> Plan:
    """Each range of layers with its own degrees on all devices; ends go as the layers beside them, or, if
    they share weights, as the first.

    What goes from one range to the next is moved from one split to the other. A microbatch has as many
    samples as the widest dp asks for.
    """
    parts = [_part(word, devices, knobs) for word in layers.split(",")]
    widest = max((strategy for _, strategy in parts), key=lambda each: each.dp)
    strategies = _by_block(graph, parts)

    def axes(instance: Instance) -> tuple[Axis, ...]:
        return op_axes(strategies[instance.block], instance.op)

    degrees = {"tp": widest.tp, "cp": widest.cp, "sp": widest.sp}
    return structured(graph, devices, batch, axes=axes, **(knobs | degrees))


def _part(text: str, devices: int, knobs: dict[str, Any]) -> Part:
    where, _, degrees = text.partition(":")
    if not _DEGREES.match(degrees):
        raise BadInput("per-layer layers", text, "lacks its degrees", _FORM)
    found = {name: int(degree) for name, degree in _DEGREE.findall(degrees)}
    dp = found.pop("dp", 0)
    strategy = fill(devices, **(knobs | found | {"sp": degrees.endswith("sp")}))
    if dp and dp != strategy.dp:
        rule = f"{devices} devices leave dp{strategy.dp}"
        raise BadInput("per-layer layers", text, rule, "let the product of degrees be the devices")
    return parse_range(where), replace(strategy, dp=strategy.dp)


def _by_block(graph: Graph, parts: list[Part]) -> dict[str, Strategy]:
    instances = wire(graph)
    names = layer_names(instances)
    found = []
    for name in names:
        mine = [strategy for where, strategy in parts if layer_number(name) in where]
        if len(mine) != 1:
            rule = "is in two ranges" if mine else "is in no range"
            raise BadInput("per-layer layers", name, rule, _FORM)
        found += mine
    homes = block_homes(instances, [[name] for name in names])
    shared = {each.block for each in instances for weight in each.op.weights if weight.name in graph.tied}
    return {block: found[0 if block in shared else home] for block, home in homes.items()}
