"""What a plan is lowered for: a model, a cluster, and the software between them."""

from dataclasses import dataclass
from functools import cached_property

from trainwright.cluster.types import Cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.operators import Machine
from trainwright.model.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A model on a cluster with a stack, at a sequence length."""

    graph: Graph
    cluster: Cluster
    stack: Stack
    efficiency: Efficiency
    seq: int
    precision: str = "bf16"

    @cached_property
    def machine(self) -> Machine:
        """The device as operators see it."""
        return Machine(
            device=self.cluster.device, efficiency=self.efficiency, stack=self.stack, precision=self.precision
        )
