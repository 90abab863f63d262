"""ZeRO: copies of the model that share its state (Rajbhandari et al., 2019, arXiv 1910.02054)."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import structured


def zero_1(graph: Graph, devices: int, batch: int, **knobs: Any) -> Plan:
    """Each copy keeps its share of the optimizer's state."""
    return structured(graph, devices, batch, zero=1, **knobs)


def zero_2(graph: Graph, devices: int, batch: int, **knobs: Any) -> Plan:
    """Each copy keeps its share of the optimizer's state and of the gradients."""
    return structured(graph, devices, batch, zero=2, **knobs)


def zero_3(graph: Graph, devices: int, batch: int, **knobs: Any) -> Plan:
    """Each copy keeps its share of all state; weights are gathered before a block and freed after it."""
    return structured(graph, devices, batch, zero=3, **knobs)
