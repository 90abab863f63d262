"""What a prediction rests on, and the source that was fitted to published runs."""

from dataclasses import dataclass

from trainwright.cluster.types import Cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import GENERIC, Constants, Interval

# By family of device.
_STACKS = {"tpu": "maxtext", "trainium": GENERIC, "gaudi": GENERIC, "dojo": GENERIC, "ascend": GENERIC}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a prediction rests on: efficiencies or measured times, the stack, its range, and words on it."""

    efficiency: Efficiency
    stack: Stack
    interval: Interval
    notes: tuple[str, ...]


def fitted_source(constants: Constants, cluster: Cluster, asked: Stack | None) -> Source:
    """The constants that were fitted to published runs."""
    stack = asked or constants.stack(_default_stack(cluster))
    efficiency = constants.efficiency(cluster.device)
    return Source(
        efficiency=efficiency, stack=stack, interval=constants.interval(efficiency, stack),
        notes=_basis(efficiency, stack, cluster),
    )  # fmt: skip


def _basis(efficiency: Efficiency, stack: Stack, cluster: Cluster) -> tuple[str, ...]:
    """What the constants rest on."""
    device = cluster.device
    notes = []
    if not efficiency.runs:
        owner = {"device": "kernels of its own", "family": f"its family, {device.family},"}.get(
            efficiency.basis, "accelerators in general"
        )
        notes.append(
            f"No training runs on {device.name} were fitted: its efficiencies are those of {owner} "
            "and the range is wide."
        )
    else:
        own = device.name if efficiency.basis == "device" else f"{device.family} devices"
        notes.append(f"Fitted on {efficiency.runs:,} runs on {own}.")
    if stack.name == GENERIC:
        notes.append(
            "generic stands for unknown software: what all known stacks have in common, and a wide range."
        )
    elif not stack.runs:
        notes.append(
            f"No runs of {stack.name} were fitted: it has the constants of {stack.basis}, and a wide range."
        )
    return tuple(notes)


def _default_stack(cluster: Cluster) -> str:
    """What most users of a family of devices run."""
    return _STACKS.get(cluster.device.family, "megatron-core")
