"""What is taken where a user states nothing: software, batch, precision, and the knobs that software has."""

from math import log2

from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import AXES, Stack
from trainwright.cost.load import GENERIC
from trainwright.model.graph import Graph, parameters
from trainwright.plan.strategy import OFFLOADS, SCHEDULES

_STACKS = {"tpu": "maxtext", "trainium": GENERIC, "gaudi": GENERIC, "dojo": GENERIC}  # by family of device


def usual_stack(device: Device) -> str:
    """What most users of a family of devices run."""
    return _STACKS.get(device.family, "megatron-core")


def usual_batch_tokens(graph: Graph) -> int:
    """Tokens per step by model size: 4M at 10 billion parameters, growing with the root, 0.5M to 16M."""
    wanted = 4.0 * (parameters(graph) / 1e10) ** 0.5
    return int(2 ** min(max(round(log2(wanted)), -1), 4) * 2**20)


def usual_batch(graph: Graph, cluster: Cluster, seq: int) -> int:
    """Sequences per step: near the usual tokens, the odd part of the device count times a power of two."""
    batch = max(usual_batch_tokens(graph) // seq, 1)
    odd = cluster.count // (cluster.count & -cluster.count)
    return int(odd * 2 ** max(round(log2(batch / odd)), 0))


def usual_precision(device: Device) -> str:
    """The 16-bit precision that a device has; of a CPU, what it was profiled in."""
    if device.family == "cpu":
        return "fp32"
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def able_knobs(stack: Stack) -> dict[str, tuple[int, ...]]:
    """The values of knobs that a stack can run, of those knobs where it cannot run all."""
    return {
        "schedule": tuple(SCHEDULES.index(name) for name in stack.schedules),
        "offload": tuple(OFFLOADS.index(name) for name in stack.offloads),
        "zero": stack.zeros,
    } | {axis: (1,) for axis in AXES if axis not in stack.axes}
