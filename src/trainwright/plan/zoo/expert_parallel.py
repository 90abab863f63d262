"""Expert parallelism: each device has some experts, and tokens travel to theirs (arXiv 2006.16668)."""

from math import gcd
from typing import Any

from trainwright.errors import BadInput
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import REST, fill, structured


def expert_parallel(graph: Graph, devices: int, batch: int, *, ep: int = REST, **knobs: Any) -> Plan:
    """Experts over the devices of a stage, as many as divide them by default; the rest data parallel."""
    if not graph.sizes.get("experts"):
        raise BadInput("expert-parallel", graph.name, "the model has no experts", "use another plan")
    strategy = fill(devices, **knobs)
    within = strategy.dp * strategy.cp * strategy.tp // strategy.etp
    return structured(graph, devices, batch, ep=ep or gcd(within, graph.sizes["experts"]), **knobs)
