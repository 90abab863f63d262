"""Chimera: two pipelines in opposite directions, in two copies of the weights."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def chimera(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Stage i is on rows i and p−1−i; even microbatches go down, odd ones up."""
    staging = Staging(schedule="chimera")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
