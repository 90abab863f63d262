"""What the runs of a table are predicted to draw."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.source import Source
from trainwright.estimate.types import Job
from trainwright.report.summary import Terms, summarize
from trainwright.validate.dataset import Dataset, Group, Predictions, group_job

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Of each row, watts of a device and tokens per joule at the meter; not a number if not predicted."""

    device_w: Array
    tokens_per_joule: Array


def predict_power(dataset: Dataset, predictions: Predictions, sources: Sequence[Source]) -> Power:
    """The power of what was predicted, with the source of each group."""
    watts, tokens = (np.full(len(dataset.rows), np.nan) for _ in range(2))
    for group, source in zip(dataset.groups, sources, strict=True):
        job = group_job(group, source.stack, source.efficiency)
        at = list(group.indices)
        watts[at], tokens[at] = _of_group(dataset, group, job, predictions.chosen[at], source)
    return Power(device_w=watts, tokens_per_joule=tokens)


def _of_group(
    dataset: Dataset, group: Group, job: Job, chosen: NDArray[np.int64], source: Source
) -> tuple[list[float], list[float]]:
    """A group's job has the largest cluster of its cases: per device that makes no difference."""
    terms = Terms(interval=source.interval, tokens=1.0, dollars_per_device_hour=0.0)
    job = replace(job, global_batch=group.global_batch[chosen])
    found = summarize(job, group.candidates.take(chosen), terms)
    cases = [dataset.cases[index] for index in group.indices]
    shares = [case.cluster.count / job.cluster.count if case else 1.0 for case in cases]
    return (
        [each.device_w for each in found],
        [each.tokens_per_joule / share for each, share in zip(found, shares, strict=True)],
    )
