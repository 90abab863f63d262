"""Looped breadth-first: several stages on each row, every microbatch on one before the next."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def looped_bfs(graph: Graph, devices: int, batch: int, *, pp: int = REST, vpp: int = 2, **knobs: Any) -> Plan:
    """The stages of interleaved, each gathered and reduced once a step; all activations are held."""
    staging = Staging(schedule="looped-bfs", options={"vpp": vpp})
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
