"""The machine that processes run on here, as costs see it."""

from dataclasses import dataclass, replace

from trainwright.cluster.types import Cluster, Device, Level, MemoryTier, Network
from trainwright.cost.constants import Efficiency, Stack
from trainwright.model.graph import Graph
from trainwright.program.setting import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What each of some processes reaches while all of them work, and what they reach between one another.

    Unless `profile` has measured it, it is one core of an ordinary server.
    """

    flops_per_s: float = 2e10  # of matrix products
    attention_flops_per_s: float = 1e10  # forward
    attention_back_flops_per_s: float = 1e10
    memory_bytes_per_s: float = 5e9  # of what operators read and write that are not products
    link_bytes_per_s: float = 1e9
    link_latency_s: float = 1e-4
    op_s: float = 2e-5  # of an operator, however small
    interference: float = 0.0  # seconds that compute loses for each second of what is sent behind it
    memory_bytes: float = 8e9


# The runtime's own software: gradients and new weights travel beside compute, all else in the open.
STACK = Stack(
    name="trainwright", dp_overlap=1.0, zero_overlap=1.0, tp_overlap=0.0, cp_overlap=0.0, interference=0.0,
    step_s=0.0, send_s=0.0, op_s=0.0,
)  # fmt: skip


def build_setting(
    graph: Graph, count: int, seq: int, precision: str, machine: Machine | None = None
) -> Setting:
    """A model on so many processes of this machine."""
    machine = machine or Machine()
    tiers = (
        MemoryTier(
            name="memory", capacity_bytes=machine.memory_bytes, bytes_per_s=machine.memory_bytes_per_s
        ),
        MemoryTier(name="host", capacity_bytes=machine.memory_bytes, bytes_per_s=machine.memory_bytes_per_s),
    )
    rates = dict.fromkeys(("fp32", "bf16", "fp16"), machine.flops_per_s)
    device = Device(
        name="here", family="here", peak_flops_per_s=rates, memory=tiers, buffer_bytes=1e6, compute_units=1,
        idle_w=0.0, peak_w=0.0, price_per_hour=0.0, network="here", source="measured here",
    )  # fmt: skip
    level = Level(name="node", size=count, bytes_per_s=machine.link_bytes_per_s, latency_s=0.0)
    network = Network(
        name="here", levels=(level,), host_w=0.0, host_bytes_per_s=machine.memory_bytes_per_s,
        source="measured here",
    )  # fmt: skip
    cluster = Cluster(name="here", device=device, network=network, count=count)
    efficiency = Efficiency(
        gemm=1.0, depth=0.0, tile_penalty=0.0, kernel_s=machine.op_s, memory=1.0,
        attention_forward=machine.attention_flops_per_s / machine.flops_per_s,
        attention_backward=machine.attention_back_flops_per_s / machine.flops_per_s,
        inner_link=1.0, outer_link=1.0, inner_latency_s=machine.link_latency_s,
        outer_latency_s=machine.link_latency_s, basis="here",
    )  # fmt: skip
    stack = replace(STACK, interference=machine.interference)
    return Setting(
        graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=seq, precision=precision
    )
