"""3F1B: a pipeline for models that recycle, with several forwards before each backward."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.structured import REST, structured


def three_f_one_b(graph: Graph, devices: int, batch: int, *, pp: int = REST, **knobs: Any) -> Plan:
    """As many forwards as the model has passes, all but the last without gradient; with one it is 1F1B."""
    staging = Staging(schedule="3f1b", options={"passes": graph.passes})
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
