"""Offload: what is not needed at once lives in the memory of the host."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import structured


def offload(
    graph: Graph, devices: int, batch: int, *, what: str = "optimizer", zero: int = 1, **knobs: Any
) -> Plan:
    """The optimizer's state, activations between forward and backward, or both."""
    return structured(graph, devices, batch, offload=what, zero=zero, **knobs)
