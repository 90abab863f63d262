"""A recommender on a cluster: how few devices an instance needs, with and without expanded memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainwright.cluster.types import SPILL, Cluster
from trainwright.model.graph import Graph
from trainwright.search.tables import lay_tables
from trainwright.study.design_clusters import tables_job
from trainwright.study.design_maps import Grid
from trainwright.study.mp_dp import degrees, with_expansion

SAMPLES = 512  # for each device
PRECISION = "fp32"
_LARGEST = 64  # devices of an instance, on the grid: larger ones only lose
GRID_GB = (80, 160, 240, 320, 560, 1120)
GRID_GBPS = (10.0, 50.0, 100.0, 250.0, 500.0, 2039.0)
EXPANSIONS = ((0.0, 0.0), (560.0, 100.0), (560.0, 250.0), (560.0, 500.0), (560.0, 2039.0))  # GB and GB/s


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """Instances of one size on one cluster, and what all of them give together."""

    expanded_gb: float
    expanded_gbps: float
    devices: int
    instances: int
    sharding: str
    step_s: float
    samples_per_s: float
    memory_bytes: float


def instance_rows(graph: Graph, cluster: Cluster) -> tuple[InstanceRow, ...]:
    """Every size of instance that fits, for each expansion of memory."""
    return tuple(row for gb, gbps in EXPANSIONS for row in _rows(graph, cluster, gb, gbps))


def tables_grid(graph: Graph, cluster: Cluster) -> Grid:
    """Capacity of an expanded tier against its bandwidth: samples of the cluster in its best instances."""
    base, _ = _best(graph, cluster, 0.0, 0.0)
    found = [[_best(graph, cluster, float(gb), gbps) for gb in GRID_GB] for gbps in GRID_GBPS]
    return Grid(
        name="tables", x_title="expanded GB", y_title="expanded GB/s", x=tuple(map(float, GRID_GB)),
        y=GRID_GBPS,
        speedup=tuple(tuple(rate / base if base else 0.0 for rate, _ in line) for line in found),
        mp=tuple(tuple(size for _, size in line) for line in found),
    )  # fmt: skip


def _best(graph: Graph, cluster: Cluster, gb: float, gbps: float) -> tuple[float, int]:
    """Samples a second of the cluster in its best instances, and their size."""
    rows = [(each.samples_per_s, each.devices) for each in _rows(graph, cluster, gb, gbps, _LARGEST)]
    return max(rows, default=(0.0, 0))


def _rows(graph: Graph, cluster: Cluster, gb: float, gbps: float, largest: int = 0) -> Iterator[InstanceRow]:
    own = replace(cluster, device=replace(cluster.device, memory=cluster.device.memory[:1]))
    expanded = replace(with_expansion(own, gb * 1e9, gbps * 1e9), spill=SPILL)  # tables leave first
    job = tables_job(graph, expanded if gb else own)
    for size in degrees(largest or cluster.count):
        laid = lay_tables(job, size, SAMPLES, PRECISION)
        if laid.fitting:
            yield InstanceRow(
                expanded_gb=gb, expanded_gbps=gbps, devices=size, instances=laid.instances,
                sharding=str(laid.shardings[0]), step_s=laid.step_s, samples_per_s=laid.samples_per_s,
                memory_bytes=float(laid.estimates.total_bytes[laid.order[0]]),
            )  # fmt: skip
