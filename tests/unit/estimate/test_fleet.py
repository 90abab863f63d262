"""Clusters estimated together are estimated as they are alone, to the last bit."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import MemoryTier
from trainwright.cost.load import load_constants
from trainwright.estimate.fleet import altered, at, estimate_all, estimate_each, sort_strategies
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Estimates, Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import Strategies
from trainwright.search.space import Space, legal_strategies

COUNT = 5


def varied(value: Any, random: np.random.Generator) -> Any:
    """A value in which every number with a point is several, of which the first is the old one."""
    if isinstance(value, float) and value > 0:
        return np.array([value, *value * random.uniform(0.5, 2.0, COUNT - 1)])
    if is_dataclass(value) and not isinstance(value, type):
        return altered(value, {f.name: varied(getattr(value, f.name), random) for f in fields(value)})
    if isinstance(value, tuple):
        return tuple(varied(each, random) for each in value)
    if isinstance(value, Mapping):
        return {key: varied(each, random) for key, each in value.items()}
    return value


def fleet(model: str, cluster: str, stack: str = "megatron-core", *, expanded: bool = False) -> Job:
    """A job whose clusters differ in every rate, capacity and price."""
    constants, base = load_constants(), load_cluster(cluster)
    if expanded:
        own, *others = base.device.memory
        far = MemoryTier(
            name="cxl", capacity_bytes=4e11, bytes_per_s=4e11, latency_s=1e-6, access="direct", shared="node"
        )
        memory = (replace(own, capacity_bytes=own.capacity_bytes / 4), *others, far)
        base = replace(base, device=replace(base.device, memory=memory))
    return Job(
        graph=build_graph(load_model(model)),
        cluster=varied(base, np.random.default_rng(0)),
        stack=constants.stack(stack),
        efficiency=constants.efficiency(base.device),
        seq=2048,
        global_batch=64,
    )


def some_strategies(job: Job, count: int = 300) -> Strategies:
    precisions = (1, 3)  # bf16, fp8
    space = Space(
        graph=job.graph, devices=job.cluster.count, seq=job.seq, global_batch=64,
        fixed={"precision": precisions}, most={},
    )  # fmt: skip
    legal = legal_strategies(space)
    return legal.take(np.random.default_rng(1).permutation(len(legal))[:count])


def assert_same(some: Estimates, rows: slice, other: Estimates) -> None:
    for name in ("step_s", "busy_s", "total_bytes", "host_bytes", "tiers_s", "feasible"):
        # powers of arrays of several elements may round otherwise than those of one
        np.testing.assert_allclose(getattr(some, name)[rows], getattr(other, name), rtol=1e-14, err_msg=name)
    for name in ("time_s", "communication_s", "memory_bytes", "tier_bytes"):
        for key, values in getattr(other, name).items():
            # parts are what sums leave over: 0 may be a rounding error there
            np.testing.assert_allclose(
                getattr(some, name)[key][rows], values, rtol=1e-12, atol=1e-14, err_msg=f"{name} {key}"
            )


@pytest.mark.parametrize(
    ("model", "cluster", "stack"),
    [
        ("llama3-8b", "h100:16", "megatron-core"),
        ("mixtral-8x7b", "a100:32", "generic"),
        ("llama3-8b", "tpu-v5p:16", "maxtext"),
        ("llama3-8b", "h100:32", "megatron-core"),
    ],
)
def test_a_fleet_is_estimated_as_its_clusters_one_by_one(model: str, cluster: str, stack: str) -> None:
    job = fleet(model, cluster, stack, expanded=cluster == "h100:32")
    strategies = some_strategies(job)
    together = estimate_all(job, COUNT, sort_strategies(strategies), detail=True)
    assert (together.tiers_s.max() > 0) == (cluster == "h100:32")
    for index in range(COUNT):
        alone = estimate(at(job, np.int64(index)), strategies)
        assert_same(together, slice(index * len(strategies), (index + 1) * len(strategies)), alone)


def test_pairs_of_cluster_and_strategy_are_estimated_as_one_by_one() -> None:
    job = fleet("llama3-8b", "h100:16")
    strategies = some_strategies(job, COUNT)
    pairs = estimate_each(job, strategies)
    for index in range(COUNT):
        alone = estimate(at(job, np.int64(index)), strategies.take(slice(index, index + 1)))
        assert_same(pairs, slice(index, index + 1), alone)


def test_devices_that_share_cores_are_slowed_in_a_fleet_too() -> None:
    job = fleet("llama3-8b", "h100:16")
    crowded = replace(job, cluster=altered(job.cluster, {"at_once": 4}))
    strategies = some_strategies(job, 50)
    together = estimate_all(crowded, COUNT, sort_strategies(strategies))
    alone = estimate(at(crowded, np.int64(2)), strategies, detail=False)
    assert_same(together, slice(100, 150), alone)
