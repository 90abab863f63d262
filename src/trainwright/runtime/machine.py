"""The machine that processes run on here, as costs see it."""

from dataclasses import replace
from pathlib import Path

from trainwright.cluster.types import Cluster, Device, Level, MemoryTier, Network
from trainwright.cost.constants import OWN, Efficiency
from trainwright.cost.fabric import PERFECT, alike
from trainwright.cost.load import load_constants
from trainwright.cost.source import Source, build_source, load_profile
from trainwright.model.graph import Graph
from trainwright.program.setting import Setting

# One core of an ordinary server: enough to lower a plan that is to be run. `profile` measures the real one.
_FLOPS_PER_S, _MEMORY_BYTES_PER_S, _MEMORY_BYTES = 2e10, 5e9, 8e9
_LINK_BYTES_PER_S, _LATENCY_S, _OPERATOR_S = 1e9, 1e-4, 2e-5


def build_setting(graph: Graph, count: int, seq: int, precision: str, profile: Path | None = None) -> Setting:
    """A model on so many processes of this machine: one that was profiled, or an ordinary one."""
    if profile is not None:
        return _profiled(graph, count, seq, precision, profile)
    tiers = tuple(
        MemoryTier(name=name, capacity_bytes=_MEMORY_BYTES, bytes_per_s=_MEMORY_BYTES_PER_S)
        for name in ("memory", "host")
    )
    device = Device(
        name="here", family="here", peak_flops_per_s=dict.fromkeys(("fp32", "bf16", "fp16"), _FLOPS_PER_S),
        memory=tiers, buffer_bytes=1e6, compute_units=1, idle_w=0.0, peak_w=0.0, price_per_hour=0.0,
        network="here", source="assumed",
    )  # fmt: skip
    level = Level(name="node", size=count, bytes_per_s=_LINK_BYTES_PER_S, latency_s=0.0)
    network = Network(
        name="here", levels=(level,), host_w=0.0, host_bytes_per_s=_MEMORY_BYTES_PER_S, source="assumed"
    )
    efficiency = Efficiency(
        gemm=1.0, depth=0.0, tile_penalty=0.0, kernel_s=_OPERATOR_S, memory=1.0, attention_forward=0.5,
        attention_backward=0.5, fabrics=alike(replace(PERFECT, latency_s=_LATENCY_S)), basis="here",
    )  # fmt: skip
    cluster = Cluster(name="here", device=device, network=network, count=count)
    return Setting(
        graph=graph, cluster=cluster, stack=OWN, efficiency=efficiency, seq=seq, precision=precision
    )


def _profiled(graph: Graph, count: int, seq: int, precision: str, path: Path) -> Setting:
    source = profiled_source(count, path, "profiled")
    return Setting(
        graph=graph, cluster=profiled_cluster(count, path), stack=source.stack,
        efficiency=source.efficiency, seq=seq, precision=precision,
    )  # fmt: skip


def profiled_cluster(count: int, path: Path) -> Cluster:
    """So many processes of a machine that was profiled."""
    cluster = replace(load_profile(path)[1], count=count)
    _ = cluster.levels  # its network must be able to join all of them
    return cluster


def profiled_source(count: int, path: Path, cost: str) -> Source:
    """What a prediction for so many processes of a profiled machine rests on, as `--cost` says it."""
    return build_source(cost, str(path), profiled_cluster(count, path), load_constants(), None)
