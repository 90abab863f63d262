"""What a better cluster would bring: each resource 25 % better, by itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster, Level
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Array, Job
from trainwright.plan.strategy import Strategies, Strategy

BETTER = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One resource improved: how much faster the best plan becomes, and which it then is."""

    resource: str
    faster: float  # 0.1 is 10 % more tokens per second
    strategy: Strategy


def _compute(job: Job) -> Job:
    device = job.cluster.device
    peaks = {dtype: BETTER * rate for dtype, rate in device.peak_flops_per_s.items()}
    return _on(job, replace(job.cluster, device=replace(device, peak_flops_per_s=peaks)))


def _memory_bandwidth(job: Job) -> Job:
    device = job.cluster.device
    own = replace(device.memory[0], bytes_per_s=BETTER * device.memory[0].bytes_per_s)
    return _on(job, replace(job.cluster, device=replace(device, memory=(own, *device.memory[1:]))))


def _intra_node(job: Job) -> Job:
    return _levels(job, lambda index, level: _wider(level) if index == 0 else level)


def _inter_node(job: Job) -> Job:
    return _levels(job, lambda index, level: _wider(level) if index > 0 else level)


def _latency(job: Job) -> Job:
    """Hardware and software latency of every hop."""
    quick = _levels(job, lambda _, level: replace(level, latency_s=level.latency_s / BETTER))
    efficiency = replace(
        job.efficiency,
        inner_latency_s=job.efficiency.inner_latency_s / BETTER,
        outer_latency_s=job.efficiency.outer_latency_s / BETTER,
    )
    return replace(quick, efficiency=efficiency)


CHANGES: Mapping[str, Callable[[Job], Job]] = {
    "compute": _compute,
    "memory bandwidth": _memory_bandwidth,
    "bandwidth inside a node": _intra_node,
    "bandwidth between nodes": _inter_node,
    "latency": _latency,
}


def what_if(
    job: Job, strategies: Strategies, global_batch: NDArray[np.int64], charge: Array | float = 1.0
) -> tuple[WhatIf, ...]:
    """Each change, answered by the best of the given strategies: those that fit, the best of them first.

    A quarter more of one resource makes no strategy more than a quarter faster, so the answer is exact if
    the strategies include all that need at most 1.25 times the best time. `charge` is how many sequences the
    batch of each strategy needs for the worth of one.
    """
    before = (charge * _per_sequence(job, strategies, global_batch))[0]
    answers = []
    for resource, change in CHANGES.items():
        after = charge * _per_sequence(change(job), strategies, global_batch)
        best = int(np.argmin(after)) if after.min() < after[0] * (1.0 - 1e-6) else 0
        answers.append(
            WhatIf(resource=resource, faster=float(before / after[best] - 1.0), strategy=strategies[best])
        )
    return tuple(answers)


def _per_sequence(job: Job, strategies: Strategies, global_batch: NDArray[np.int64]) -> Array:
    return estimate(replace(job, global_batch=global_batch), strategies).step_s / global_batch


def _on(job: Job, cluster: Cluster) -> Job:
    return replace(job, cluster=cluster)


def _levels(job: Job, change: Callable[[int, Level], Level]) -> Job:
    network = job.cluster.network
    levels = tuple(change(index, level) for index, level in enumerate(network.levels))
    return _on(job, replace(job.cluster, network=replace(network, levels=levels)))


def _wider(level: Level) -> Level:
    return replace(level, bytes_per_s=BETTER * level.bytes_per_s)
