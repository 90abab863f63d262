"""ZB-H1: weight gradients put off into the bubble of 1F1B."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def zb_h1(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Backwards in two halves, of inputs and of weights; as much memory as 1F1B."""
    staging = Staging(schedule="zb-h1")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
