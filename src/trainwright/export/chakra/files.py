"""A program as the files that ASTRA-sim starts from: traces of ranks, groups, system, network, memory."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput
from trainwright.export.chakra.node import Node, encode_metadata, encode_node
from trainwright.export.chakra.trace import Tracer
from trainwright.export.chakra.wire import delimited
from trainwright.export.yaml import render_yaml
from trainwright.program.lower import Program
from trainwright.program.places import find_places
from trainwright.program.tabulate import orders_of

_TOPOLOGIES = {"ring": "Ring", "full": "FullyConnected"}  # others are switches
_MOST_NODES = 200_000_000


def encode_trace(nodes: list[Node], about: dict[str, str]) -> bytes:
    """The bytes of a trace: messages one after another, each with its length before it."""
    return b"".join([delimited(encode_metadata(about)), *(delimited(encode_node(node)) for node in nodes)])


def chakra_files(program: Program, *, per_class: bool = False) -> Iterator[tuple[str, bytes]]:
    """The files of a program by name, traces first.

    One trace for each rank, or with `per_class` one for the first rank of each class of ranks that do the
    same work, and `ranks.json`, which says of which class each rank is.
    """
    _check_size(program, per_class=per_class)
    tracer, classes, plan = Tracer.of(program), rank_classes(program), program.plan
    for rank in [each[0] for each in classes] if per_class else range(plan.devices):
        about = {
            "schema": "chakra",
            "model": program.setting.graph.name,
            "plan": plan.name,
            "rank": str(rank),
        }
        yield f"trace.{rank}.et", encode_trace(tracer.nodes(rank), about)
    if per_class:
        yield "ranks.json", _json({str(rank): each[0] for each in classes for rank in each})
    yield "comm_group.json", _json({name: list(members) for members, name in tracer.groups.items()})
    cluster = replace(program.setting.cluster, count=plan.devices)
    yield "system.json", _json(system_of(cluster, plan.precision))
    yield "network.yml", render_yaml(network_of(cluster)).encode()
    yield "memory.json", _json(memory_of(program))


def check_folder(folder: Path, program: Program, *, per_class: bool) -> None:
    """Raise if a directory holds traces that would seem to be of the program too."""
    ranks = [each[0] for each in rank_classes(program)] if per_class else range(program.plan.devices)
    own = {f"trace.{rank}.et" for rank in ranks}
    others = sorted(path.name for path in folder.glob("trace.*.et") if path.name not in own)
    if others:
        raise BadInput(
            "directory", str(folder), f"holds traces of another plan ({others[0]})",
            "choose another path, or remove them",
        )  # fmt: skip


def _json(tree: object) -> bytes:
    return (json.dumps(tree, indent=1) + "\n").encode()


def rank_classes(program: Program) -> tuple[tuple[int, ...], ...]:
    """Ranks that do the same work, together."""
    placed = (each for route in program.routes for each in dict.fromkeys(route.placed))
    return find_places(placed, [order.devices for order in orders_of(program)]).devices


def _check_size(program: Program, *, per_class: bool) -> None:
    """Raise for traces that no disk would hold."""
    steps = sum(len(route.steps) for route in program.routes) * program.plan.microbatches
    traces = len(rank_classes(program)) if per_class else program.plan.devices
    stages = len(program.plan.stages) or 1
    if steps / stages * traces > _MOST_NODES:
        raise BadInput(
            "chakra traces", f"{steps / stages * traces:.1e} nodes", f"are more than {_MOST_NODES:.0e}",
            "use --per-class, fewer microbatches or fewer devices",
        )  # fmt: skip


def system_of(cluster: Cluster, precision: str) -> dict[str, object]:
    """ASTRA-sim's system layer: durations are replayed, so that its roofline is off."""
    device, dims = cluster.device, len(network_of(cluster)["npus_count"])  # type: ignore[arg-type]
    rings = ["ring"] * dims
    return {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4, "all-reduce-implementation": rings,
        "all-gather-implementation": rings, "reduce-scatter-implementation": rings,
        "all-to-all-implementation": rings, "collective-optimization": "localBWAware",
        "local-mem-bw": round(device.memory[0].bytes_per_s / 1e9), "boost-mode": 0, "roofline-enabled": 0,
        "peak-perf": round(device.peak(precision) / 1e12),
    }  # fmt: skip


def memory_of(program: Program) -> dict[str, object]:
    """ASTRA-sim's memory outside the devices: each one's share of its host, if anything is copied there."""
    if not any(step.kind == "copy" for route in program.routes for step in route.steps):
        return {"memory-type": "NO_MEMORY_EXPANSION"}
    setting = program.setting
    rate = setting.cluster.network.host_bytes_per_s * setting.efficiency.host_link
    return {
        "memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 0, "remote-mem-bw": rate / 1e9,
    }  # fmt: skip


def network_of(cluster: Cluster) -> dict[str, object]:
    """ASTRA-sim's analytical network: a dimension for each level, in GB/s per device and nanoseconds.

    A torus is a ring for each of its dims, among which a device's links are shared out.
    """
    topology, count, bandwidth, latency = [], [], [], []
    for level in cluster.levels:
        sizes = (
            _torus(level.size, int(level.topology[5])) if level.topology.startswith("torus") else [level.size]
        )
        for size in sizes if level.size > 1 else ():
            topology.append("Ring" if len(sizes) > 1 else _TOPOLOGIES.get(level.topology, "Switch"))
            count.append(size)
            bandwidth.append(level.bytes_per_s / level.oversubscription / 1e9 / len(sizes))
            latency.append(level.latency_s * 1e9)
    return {
        "topology": topology or ["Switch"], "npus_count": count or [1], "bandwidth": bandwidth or [1.0],
        "latency": latency or [0.0],
    }  # fmt: skip


def _torus(size: int, dims: int) -> list[int]:
    """A size as a product of so many near equal factors, without those of 1."""
    if dims == 1:
        return [size]
    near = round(size ** (1 / dims))
    first = min((each for each in range(1, size + 1) if size % each == 0), key=lambda each: abs(each - near))
    return [each for each in (first, *_torus(size // first, dims - 1)) if each > 1] or [size]
