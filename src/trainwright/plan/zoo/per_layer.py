"""Degrees layer by layer: some layers split one way over the devices, others another way."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.degrees import degree_axes, parse_degrees
from trainwright.plan.zoo.structured import structured


def per_layer(graph: Graph, devices: int, batch: int, *, layers: str = "0-:dp1", **knobs: Any) -> Plan:
    """Each range of layers with its own degrees on all devices; ends go as the layers beside them, or, if
    they share weights, as the first; vocabularies may have their own.

    What goes from one range to the next is moved from one split to the other. A microbatch has as many
    samples as the widest dp asks for.
    """
    degrees = parse_degrees(layers, devices, knobs)
    widest = degrees.widest
    own = {"tp": widest.tp, "cp": widest.cp, "sp": widest.sp}
    return structured(graph, devices, batch, axes=degree_axes(graph, degrees), **(knobs | own))
