"""ZB-V: two stages on each row in the shape of a V, without a bubble."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def zb_v(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Row i has stages i and 2p−1−i; weight gradients fill what would be the bubble."""
    staging = Staging(schedule="zb-v")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
