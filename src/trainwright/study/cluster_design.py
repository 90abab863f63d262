"""Parallelization and cluster chosen together: the study of COMET (arXiv 2211.16648), run anew."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trainwright.cluster.types import SPILL, Cluster
from trainwright.errors import BadInput
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.load import load_model
from trainwright.study.design_clusters import (
    FREE,
    Rival,
    free_rival,
    front,
    load_rivals,
    method_rival,
    tables_rival,
)
from trainwright.study.design_maps import Grid, compute_grid, expansion_grid, network_grid, size_rows
from trainwright.study.design_tables import SAMPLES, InstanceRow, instance_rows, tables_grid
from trainwright.study.design_value import Value, buy_next, layers_speed, tables_speed
from trainwright.study.mp_dp import (
    MpPoint,
    best_strategy,
    build_job,
    footprint_rows,
    layers_graph,
    sweep_mp,
    with_expansion,
    with_memory,
)

FOOTPRINT_MP = (256, 128, 64, 32, 16, 8, 4)
BASELINE = "a100-pods"
BASELINE_GB, LARGE_GB = 80.0, 300.0
UNLIMITED_GB = 1e7
CHOSEN = (480.0, 500.0)  # GB and GB/s of the expansion at which marginal values are told
BATCHES = (128, 256, 512, 1024)
SCALES = (0.5, 2.0)  # of the devices, on the front besides all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The subject of the study."""

    model: str = "transformer-1t"
    recommender: str = "dlrm-1.2t"
    devices: int = 1024
    batch: int = 256  # sequences a step
    clusters: tuple[str, ...] = (
        BASELINE, "a100-pods-expanded", "a100-wide-pods", "a100@dgx-a100", "h100@dgx-h100",
        "gb200@gb200-nvl72", "tpu-v4", "tpu-v5p", "mi300x", "dojo-d1", "dojo-d1-expanded",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.devices & (self.devices - 1) or self.devices < 64:
            raise BadInput("--devices", self.devices, "is no power of two from 64 on", "write 1024")
        if self.batch & (self.batch - 1) or self.batch < 1:
            raise BadInput("--batch", self.batch, "is no power of two", "write 256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that was found."""

    asked: Asked
    footprint: Sequence[Mapping[str, object]]
    sweeps: Mapping[str, tuple[MpPoint, ...]]  # by memory of a device: GB
    batches: Sequence[Mapping[str, object]]
    grids: tuple[Grid, ...]
    sizes: Sequence[Mapping[str, object]]
    rivals: tuple[Rival, ...]
    front: tuple[Rival, ...]
    instances: tuple[InstanceRow, ...]
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # by cluster

    def grid(self, name: str) -> Grid:
        """The grid of a name."""
        return next(each for each in self.grids if each.name == name)

    def of(self, space: str) -> list[Rival]:
        """The clusters that fit, in one space, fastest first."""
        found = [each for each in self.rivals if each.space == space and each.fits]
        return sorted(found, key=lambda each: -each.samples_per_s)


def run_study(asked: Asked) -> Study:
    """All parts, step by step."""
    graph = layers_graph(build_graph(load_model(asked.model)))
    recommender = build_graph(load_model(asked.recommender))
    if "tables" not in recommender.sizes:
        raise BadInput("--recommender", asked.recommender, "has no tables", "name a DLRM, like dlrm-1.2t")
    (base,) = load_rivals((BASELINE,), asked.devices)
    rivals = load_rivals(asked.clusters, asked.devices)
    larger = [each for each in FOOTPRINT_MP if each <= asked.devices]
    chosen = with_expansion(base, CHOSEN[0] * 1e9, CHOSEN[1] * 1e9)
    compared = _rivals(graph, recommender, rivals, asked.batch)
    whole = [each for each in compared if each.space == FREE]
    return Study(
        asked=asked,
        footprint=footprint_rows(graph, base, larger),
        sweeps={
            f"{gb:g}": sweep_mp(build_job(graph, with_memory(base, gb * 1e9), asked.batch))
            for gb in (BASELINE_GB, LARGE_GB, UNLIMITED_GB)
        },
        batches=_batch_rows(graph, base),
        grids=(
            expansion_grid(graph, base, asked.batch),
            compute_grid(graph, base, asked.batch),
            network_grid(graph, base, asked.batch),
            tables_grid(recommender, base),
        ),
        sizes=size_rows(graph, base, asked.batch),
        rivals=tuple(compared),
        front=tuple(front([*whole, *_scaled(graph, rivals, asked)])),
        instances=instance_rows(recommender, base),
        values={
            "baseline": buy_next(layers_speed(graph, asked.batch), base),
            "with expansion": buy_next(layers_speed(graph, asked.batch), chosen),
            "recommender": buy_next(tables_speed(recommender, SAMPLES), replace(chosen, spill=SPILL)),
        },
    )


def _batch_rows(graph: Graph, base: Cluster) -> list[Mapping[str, object]]:
    """The best degree by batch and by memory."""
    rows: list[Mapping[str, object]] = []
    for batch in BATCHES:
        for gb in (BASELINE_GB, LARGE_GB, UNLIMITED_GB):
            step_s, best = best_strategy(build_job(graph, with_memory(base, gb * 1e9), batch))
            found = {"mp": best.tp, "step_s": step_s, "strategy": str(best)} if best else {}
            rows.append({"batch": batch, "memory_gb": gb, "mp": 0, "step_s": 0.0, "strategy": ""} | found)
    return rows


def _rivals(graph: Graph, recommender: Graph, clusters: Sequence[Cluster], batch: int) -> list[Rival]:
    return [
        rival
        for cluster in clusters
        for rival in (
            method_rival(graph, cluster, batch),
            free_rival(graph, cluster, batch),
            tables_rival(recommender, cluster, SAMPLES),
        )
    ]


def _scaled(graph: Graph, clusters: Sequence[Cluster], asked: Asked) -> list[Rival]:
    """Each cluster with half and twice its devices, with its best strategy."""
    counts = [int(asked.devices * scale) for scale in SCALES]
    listed = [replace(each, count=count) for each in clusters for count in counts]
    return [free_rival(graph, each, asked.batch) for each in listed]
