"""DualPipeV: DualPipe folded in the middle, with one copy of the weights."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def dualpipe_v(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Row i has stages i and 2p−1−i, a forward of one beside a backward of the other."""
    staging = Staging(schedule="dualpipe-v")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
