"""Interleaved 1F1B: several stages on each row of devices."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def interleaved(
    graph: Graph, devices: int, batch: int, *, pp: int = REST, vpp: int = 2, **knobs: Any
) -> Plan:
    """Stage c·p + i is chunk c of row i: the bubble falls by the number of chunks, `vpp`."""
    staging = Staging(schedule="interleaved", options={"vpp": vpp})
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
