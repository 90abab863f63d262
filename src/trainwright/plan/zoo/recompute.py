"""Recomputation operator by operator: those chosen are done again before their backward."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan, Recompute
from trainwright.plan.zoo.structured import structured


def recompute(graph: Graph, devices: int, batch: int, *, ops: str = "@attention", **knobs: Any) -> Plan:
    """The operators that a pattern chooses, such as `@ffn`, `*/%attention` or `layer.0-3`."""
    return structured(graph, devices, batch, **knobs) | Plan(transforms=(Recompute(ops=ops),))
