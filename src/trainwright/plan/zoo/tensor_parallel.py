"""Tensor parallelism: linears split by columns, then by rows (Shoeybi et al., 2019, arXiv 1909.08053)."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import REST, structured


def tensor_parallel(graph: Graph, devices: int, batch: int, *, tp: int = REST, **knobs: Any) -> Plan:
    """Attention split on heads, feed-forward on its width, ends on the vocabulary; the rest in copies."""
    return structured(graph, devices, batch, tp=tp, **knobs)


def sequence_parallel(graph: Graph, devices: int, batch: int, *, tp: int = REST, **knobs: Any) -> Plan:
    """The same, with norms and residual sums split on tokens (Korthikanti et al., 2022, arXiv 2205.05198)."""
    return structured(graph, devices, batch, tp=tp, sp=True, **knobs)
