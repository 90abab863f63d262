"""1F1B: stages over rows of devices, a backward as soon as one can be."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def one_f_one_b(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """In steady state a row alternates forward and backward, so that it holds p microbatches at most."""
    staging = Staging(schedule="1f1b")
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
