"""Data parallelism: every device has the whole model and its own samples."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import structured


def data_parallel(graph: Graph, devices: int, batch: int, **knobs: Any) -> Plan:
    """Every operator split on the batch; gradients are summed once a step."""
    return structured(graph, devices, batch, **knobs)
