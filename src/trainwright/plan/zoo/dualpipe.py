"""DualPipe: microbatches from both ends of one pipeline, in two copies of its weights."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def dualpipe(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Stage i is on rows i and p−1−i; the copies sum their gradients once a step."""
    staging = Staging(schedule="dualpipe")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
