"""What is taken where a user states nothing: the batch, and the knobs and precisions that can be run."""

from collections.abc import Mapping
from math import log2

from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import Stack
from trainwright.errors import BadInput, UnknownName
from trainwright.model.graph import Graph, parameters
from trainwright.plan.strategy import CHOICES, CP_KINDS, OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.stack.capability import AXES

MOST_BATCH = 100_000_000  # sequences per step


def check_batch(batch: int, thing: str) -> None:
    """Raise for more sequences per step than a search can hold."""
    if batch > MOST_BATCH:
        raise BadInput(thing, batch, f"is more than {MOST_BATCH:,} sequences", "ask for less")


def usual_batch_tokens(graph: Graph) -> int:
    """Tokens per step by model size: 4M at 10 billion parameters, growing with the root, 0.5M to 16M."""
    wanted = 4.0 * (parameters(graph) / 1e10) ** 0.5
    return int(2 ** min(max(round(log2(wanted)), -1), 4) * 2**20)


def usual_batch(graph: Graph, cluster: Cluster, seq: int) -> int:
    """Sequences per step: near the usual tokens, the odd part of the device count times a power of two."""
    batch = max(usual_batch_tokens(graph) // seq, 1)
    odd = cluster.count // (cluster.count & -cluster.count)
    return int(odd * 2 ** max(round(log2(batch / odd)), 0))


def check_precision(name: str, device: Device, thing: str = "--precision") -> None:
    """Raise for a precision that the device would only imitate in a wider one."""
    if name not in PRECISIONS:
        raise UnknownName(thing, name, PRECISIONS)
    rates = {"fp32" if dtype == "tf32" else dtype for dtype in device.peak_flops_per_s}
    if name not in rates:
        able = ", ".join(each for each in PRECISIONS if each in rates)
        raise BadInput(thing, name, f"{device.name} has no rate for it", f"use one of {able}")


def able_knobs(stack: Stack) -> dict[str, tuple[int, ...]]:
    """The values of knobs that a stack can run, of those knobs where it may not run all.

    They bound the space that is searched; `plan.legality` has the rules between knobs.
    """
    able = stack.capability
    return {
        "schedule": tuple(SCHEDULES.index(name) for name in able.schedules),
        "offload": tuple(OFFLOADS.index(name) for name in able.offloads),
        "cp_kind": tuple(CP_KINDS.index(name) for name in able.cp_kinds),
        "zero": able.zeros,
    } | {axis: (1,) for axis in AXES if axis not in able.axes}


def check_able(stack: Stack, fixed: Mapping[str, tuple[int, ...]]) -> None:
    """Raise for a knob that is fixed to a value that the stack does not have."""
    for knob, known in able_knobs(stack).items():
        for value in fixed.get(knob, ()):
            if value not in known:
                names = CHOICES.get(knob)
                has = ", ".join(names[each] if names else str(each) for each in known)
                raise BadInput(
                    f"--fix {knob}", names[value] if names else value, f"{stack.capability.title} has {has}",
                    "use one of these, or --stack generic",
                )  # fmt: skip
