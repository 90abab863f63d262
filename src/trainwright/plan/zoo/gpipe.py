"""GPipe: stages over rows of devices, all forwards first."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def gpipe(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """Every microbatch forward, then every one backward; a row holds the activations of all of them."""
    staging = Staging(schedule="gpipe")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
