"""Small clusters, models and software whose numbers can be checked by hand."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from trainwright.cluster.types import Cluster, Device, Level, MemoryTier, Network
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.fabric import PERFECT, alike
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, is_layer
from trainwright.stack.capability import Capability
from trainwright.stack.state import StateLayout


def round_device(**changes: Any) -> Device:
    """100 TFLOP/s on 100 units, 1 TB/s to 80 GB, 10 GB/s to the host."""
    tiers = (
        MemoryTier(name="hbm", capacity_bytes=80e9, bytes_per_s=1e12),
        MemoryTier(name="host", capacity_bytes=1e12, bytes_per_s=10e9),
    )
    values: dict[str, Any] = {
        "name": "round", "family": "round", "memory": tiers,
        "peak_flops_per_s": {"fp32": 50e12, "bf16": 100e12, "fp8": 200e12},
        "buffer_bytes": 40e6, "compute_units": 100, "idle_w": 50.0, "peak_w": 500.0,
        "price_per_hour": 2.0, "network": "round", "source": "test",
    }  # fmt: skip
    return Device(**(values | changes))


def round_cluster(count: int, node: int = 8, device: Device | None = None) -> Cluster:
    """Nodes at 100 GB/s inside and 10 GB/s outside per device, without latency."""
    levels = (
        Level(name="node", size=node, bytes_per_s=100e9, latency_s=0.0),
        Level(name="fabric", size=0, bytes_per_s=10e9, latency_s=0.0),
    )
    network = Network(name="round", levels=levels, host_w=100.0, host_bytes_per_s=10e9, source="test")
    return Cluster(name="round", device=device or round_device(), network=network, count=count)


def perfect(**changes: Any) -> Efficiency:
    """A device that reaches its datasheet at every shape, with no latency."""
    nothing = ("depth", "tile_penalty", "attention_length")
    ideal: dict[str, Any] = {
        field.name: 0.0 if field.name.endswith("_s") or field.name in nothing else 1.0
        for field in fields(Efficiency)
        if field.type in (float, "float")
    }
    return Efficiency(**({"fabrics": alike(PERFECT)} | ideal | changes))


def free_stack(**changes: Any) -> Stack:
    """Software without overheads, overlap or memory of its own, however many such constants a stack has."""
    others = ("interference", "context_bytes", "fragmentation", "workspace", "logits_bytes")
    values: dict[str, Any] = {
        field.name: 0.0
        for field in fields(Stack)
        if field.name.endswith(("_s", "_overlap")) or field.name in others
    }
    plain = Capability(state=StateLayout(unit_gradient_bytes=0.0))
    return Stack(**(values | {"name": "free", "capability": plain} | changes))


def gpt(layers: int = 8, hidden: int = 1024, heads: int = 8, vocab: int = 8192, **changes: Any) -> Graph:
    """A GPT with biases, dropout and learned positions, as Korthikanti et al. count it."""
    values: dict[str, Any] = {
        "name": "gpt", "layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab, "positions": 2048,
        "norm": "layer", "qkv_bias": True, "output_bias": True, "mlp_bias": True, "dropout": True,
    }  # fmt: skip
    return build_graph(Architecture(**(values | changes)))


def without_ends(graph: Graph) -> Graph:
    """The layers of a model alone, so that all stages are alike."""
    return replace(graph, segments=tuple(s for s in graph.segments if is_layer(s.block)))


def round_job(graph: Graph, cluster: Cluster, global_batch: int = 64, **changes: Any) -> Job:
    """A job with perfect efficiency and free software unless told otherwise."""
    values: dict[str, Any] = {"stack": free_stack(), "efficiency": perfect(), "seq": 1024}
    return Job(graph=graph, cluster=cluster, global_batch=global_batch, **(values | changes))


def floats(*values: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """An array of floats."""
    return np.array(values, dtype=float)
