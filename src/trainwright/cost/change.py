"""A cluster with more or less of one resource: what sliders, `--change` and what-if answers turn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainwright.cluster.types import Cluster, Level
from trainwright.cost.constants import Efficiency
from trainwright.cost.fabric import slower
from trainwright.errors import BadInput, UnknownName

_LEAST, _MOST = 0.01, 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job runs: the cluster, and how well its devices and links are used."""

    cluster: Cluster
    efficiency: Efficiency


def parse_change(text: str) -> tuple[str, float]:
    """The resource and the factor of a text like `compute=2`."""
    name, equals, value = text.partition("=")
    if name not in RESOURCES:
        raise UnknownName("--change", name, RESOURCES)
    try:
        factor = float(value.removeprefix("x")) if equals else 0.0
    except ValueError:
        factor = 0.0
    if not _LEAST <= factor <= _MOST:
        rule = f"has no factor from {_LEAST:g} to {_MOST:g}"
        raise BadInput("--change", text, rule, f"write it like {name}=1.5")
    return name, factor


def _compute(place: Place, factor: float) -> Place:
    device = place.cluster.device
    peaks = {dtype: factor * rate for dtype, rate in device.peak_flops_per_s.items()}
    return _on(place, replace(place.cluster, device=replace(device, peak_flops_per_s=peaks)))


def _memory(place: Place, factor: float) -> Place:
    device = place.cluster.device
    own = replace(device.memory[0], capacity_bytes=factor * device.memory[0].capacity_bytes)
    return _on(place, replace(place.cluster, device=replace(device, memory=(own, *device.memory[1:]))))


def _memory_bandwidth(place: Place, factor: float) -> Place:
    device = place.cluster.device
    own = replace(device.memory[0], bytes_per_s=factor * device.memory[0].bytes_per_s)
    return _on(place, replace(place.cluster, device=replace(device, memory=(own, *device.memory[1:]))))


def _inner(place: Place, factor: float) -> Place:
    return _levels(place, lambda index, level: level if index else _wider(level, factor))


def _outer(place: Place, factor: float) -> Place:
    return _levels(place, lambda index, level: _wider(level, factor) if index else level)


def _bandwidth(place: Place, factor: float) -> Place:
    return _levels(place, lambda _, level: _wider(level, factor))


def _latency(place: Place, factor: float) -> Place:
    """Latency of every hop, in hardware and software, and of the start of collectives."""
    slow = _levels(place, lambda _, level: replace(level, latency_s=factor * level.latency_s))
    fabrics = {name: slower(fabric, factor) for name, fabric in place.efficiency.fabrics.items()}
    return replace(slow, efficiency=replace(place.efficiency, fabrics=fabrics))


RESOURCES: Mapping[str, Callable[[Place, float], Place]] = {
    "compute": _compute,
    "memory": _memory,
    "memory-bandwidth": _memory_bandwidth,
    "bandwidth": _bandwidth,
    "inner-bandwidth": _inner,
    "outer-bandwidth": _outer,
    "latency": _latency,
}


def _on(place: Place, cluster: Cluster) -> Place:
    return replace(place, cluster=cluster)


def _levels(place: Place, change: Callable[[int, Level], Level]) -> Place:
    network = place.cluster.network
    levels = tuple(change(index, level) for index, level in enumerate(network.levels))
    return _on(place, replace(place.cluster, network=replace(network, levels=levels)))


def _wider(level: Level, factor: float) -> Level:
    return replace(level, bytes_per_s=factor * level.bytes_per_s)
