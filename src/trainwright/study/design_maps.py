"""Two resources of a cluster varied together: how much faster the best degree gets, as a grid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

from trainwright.cluster.types import Cluster
from trainwright.model.graph import Graph
from trainwright.study.mp_dp import best_time, build_job, with_expansion

EXPANDED_GB = (20, 40, 80, 160, 240, 320, 480, 960)
EXPANDED_GBPS = (50.0, 100.0, 250.0, 500.0, 1000.0, 2039.0, inf)
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)
INTRA_GBPS = (75.0, 150.0, 300.0, 600.0, 900.0, 1800.0)
INTER_GBPS = (12.5, 25.0, 31.25, 62.5, 125.0, 250.0)
SIZES = (256, 512, 1024, 2048, 4096)
_ENDLESS = 1e18  # bytes a second that take no time


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Speed-ups over a baseline at each pair of values, a row for each `y`; 0 where nothing fits."""

    name: str
    x_title: str
    y_title: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    speedup: tuple[tuple[float, ...], ...]
    mp: tuple[tuple[int, ...], ...]  # the best degree; of a recommender, devices of an instance

    def rows(self) -> list[dict[str, object]]:
        """One row for each pair."""
        return [
            {"map": self.name, self.x_title: x, self.y_title: y, "speedup": fast, "mp": mp}
            for y, line, degrees in zip(self.y, self.speedup, self.mp, strict=True)
            for x, fast, mp in zip(self.x, line, degrees, strict=True)
        ]


Change = Callable[[Cluster, float, float], Cluster]


def expansion_grid(graph: Graph, cluster: Cluster, batch: int) -> Grid:
    """Capacity of an expanded tier against its bandwidth."""

    def change(base: Cluster, gb: float, gbps: float) -> Cluster:
        return with_expansion(base, gb * 1e9, min(gbps * 1e9, _ENDLESS))

    titles = ("expanded GB", "expanded GB/s")
    return _grid("expansion", titles, EXPANDED_GB, EXPANDED_GBPS, graph, cluster, batch, change)


def compute_grid(graph: Graph, cluster: Cluster, batch: int) -> Grid:
    """Compute against the bandwidth of the devices' own memory."""
    titles = ("compute", "memory bandwidth")
    return _grid("compute", titles, FACTORS, FACTORS, graph, cluster, batch, faster)


def network_grid(graph: Graph, cluster: Cluster, batch: int) -> Grid:
    """Bandwidth inside pods against that between them."""

    def change(base: Cluster, intra: float, inter: float) -> Cluster:
        return with_links(base, intra * 1e9, inter * 1e9)

    titles = ("intra-pod GB/s", "inter-pod GB/s")
    return _grid("network", titles, INTRA_GBPS, INTER_GBPS, graph, cluster, batch, change)


def faster(cluster: Cluster, compute: float, memory: float) -> Cluster:
    """The cluster with so many times the compute and the bandwidth of its own memory."""
    device = cluster.device
    own, *others = device.memory
    changed = replace(
        device,
        peak_flops_per_s={dtype: compute * rate for dtype, rate in device.peak_flops_per_s.items()},
        memory=(replace(own, bytes_per_s=memory * own.bytes_per_s), *others),
    )
    return replace(cluster, device=changed)


def with_links(cluster: Cluster, intra_bytes_per_s: float, inter_bytes_per_s: float) -> Cluster:
    """The cluster with these bandwidths inside its innermost level and at all others."""
    levels = tuple(
        replace(level, bytes_per_s=inter_bytes_per_s if index else intra_bytes_per_s)
        for index, level in enumerate(cluster.network.levels)
    )
    return replace(cluster, network=replace(cluster.network, levels=levels))


def size_rows(graph: Graph, cluster: Cluster, batch: int) -> list[dict[str, object]]:
    """Clusters of other sizes on the same batch."""
    rows: list[dict[str, object]] = []
    for count in SIZES:
        job = build_job(graph, replace(cluster, count=count), batch)
        step_s, mp = best_time(job)
        fits = mp > 0
        rows.append(
            {
                "devices": count, "fits": fits, "mp": mp, "step_s": step_s if fits else 0.0,
                "sequences_per_s": batch / step_s, "sequences_per_s_per_device": batch / step_s / count,
            }
        )  # fmt: skip
    return rows


def _grid(
    name: str,
    titles: tuple[str, str],
    x: Sequence[float],
    y: Sequence[float],
    graph: Graph,
    cluster: Cluster,
    batch: int,
    change: Change,
) -> Grid:
    base_s, _ = best_time(build_job(graph, cluster, batch))
    found = [[best_time(build_job(graph, change(cluster, one, two), batch)) for one in x] for two in y]
    return Grid(
        name=name, x_title=titles[0], y_title=titles[1], x=tuple(map(float, x)), y=tuple(map(float, y)),
        speedup=tuple(tuple(base_s / step_s for step_s, _ in line) for line in found),
        mp=tuple(tuple(mp for _, mp in line) for line in found),
    )  # fmt: skip
