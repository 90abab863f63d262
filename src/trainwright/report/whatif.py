"""What a better cluster would bring: each resource 25 % better, by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.change import RESOURCES, Place
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


# What is improved, and how: times the resource, or a part of the latency.
CHANGES: Mapping[str, tuple[str, float]] = {
    "compute": ("compute", BETTER),
    "memory bandwidth": ("memory-bandwidth", BETTER),
    "bandwidth inside a node": ("inner-bandwidth", BETTER),
    "bandwidth between nodes": ("outer-bandwidth", BETTER),
    "latency": ("latency", 1 / BETTER),
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
        after = charge * _per_sequence(_changed(job, *change), strategies, global_batch)
        best = int(np.argmin(after)) if after.min() < after[0] * (1.0 - 1e-6) else 0
        answers.append(
            WhatIf(resource=resource, faster=float(before / after[best] - 1.0), strategy=strategies[best])
        )
    return tuple(answers)


def _per_sequence(job: Job, strategies: Strategies, global_batch: NDArray[np.int64]) -> Array:
    job = replace(job, global_batch=global_batch)
    return estimate(job, strategies, detail=False).step_s / global_batch


def _changed(job: Job, resource: str, factor: float) -> Job:
    place = RESOURCES[resource](Place(cluster=job.cluster, efficiency=job.efficiency), factor)
    return replace(job, cluster=place.cluster, efficiency=place.efficiency)
