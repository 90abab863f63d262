"""A plan on its way to a tool."""

from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.plan.strategy import Strategy

DEVICES_PER_NODE = 8  # where no cluster is stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Knobs and batch; the model and its length if they are known; and how devices are spread over nodes.

    `model` is the model as the user named it. Optimizer, gradient dtype and device family say which state is
    kept, and in which recipe.
    """

    strategy: Strategy
    global_batch: int
    seq: int | None = None
    model: str | None = None
    architecture: Architecture | None = None
    per_node: int = DEVICES_PER_NODE
    optimizer: str = ""  # as stated; "": the stack's own
    grad_dtype: str = ""
    device_family: str = ""  # "": not known

    def __post_init__(self) -> None:
        if self.global_batch % (self.strategy.dp * self.strategy.micro_batch):
            raise BadInput(
                f'strategy "{self.strategy}": batch', self.global_batch,
                f"does not divide by dp·mb = {self.strategy.dp * self.strategy.micro_batch}",
                "change --batch, dp or mb",
            )  # fmt: skip

    @property
    def microbatches(self) -> int:
        """Microbatches of a step: what a replica accumulates or sends through its pipeline."""
        return self.global_batch // (self.strategy.dp * self.strategy.micro_batch)

    @property
    def nodes(self) -> int:
        """Nodes that the devices are on, with as many on each."""
        return self.strategy.devices // self.processes_per_node

    @property
    def processes_per_node(self) -> int:
        """Processes on each node, one for each device."""
        return spread(self.strategy.devices, self.per_node, self.strategy.tp)

    @property
    def is_uneven(self) -> bool:
        """Whether nodes that the devices need are not used whole."""
        return self.processes_per_node != min(self.per_node, self.strategy.devices)


def spread(devices: int, per_node: int, together: int = 1) -> int:
    """Devices that are used on each node, as launchers start as many everywhere.

    As many as there are if they fill nodes; else the most that divide, in whole groups of `together` if that
    can be.
    """
    fitting = [each for each in range(1, min(per_node, devices) + 1) if devices % each == 0]
    return max((each for each in fitting if each % together == 0), default=max(fitting))
