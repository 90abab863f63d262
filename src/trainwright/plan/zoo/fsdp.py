"""Fully sharded data parallelism as PyTorch names it, within nodes or over all devices (arXiv 2304.11277)."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.structured import structured


def fsdp(graph: Graph, devices: int, batch: int, **knobs: Any) -> Plan:
    """All state is shared by all copies of the model: ZeRO-3 under another name."""
    return structured(graph, devices, batch, zero=3, **knobs)


def hsdp(graph: Graph, devices: int, batch: int, *, shard: int = 8, **knobs: Any) -> Plan:
    """Groups of `shard` devices share all state; groups sum their gradients once a step."""
    return structured(graph, devices, batch, zero=3, shard=shard, **knobs)
