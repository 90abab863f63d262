"""Candidates in order of an objective, ties broken by their knobs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.power import Activity, power_w
from trainwright.errors import UnknownName
from trainwright.estimate.types import Array, Estimates, Job
from trainwright.plan.strategy import Strategies, join_strategies

Ints = NDArray[np.int64]
_DIGITS = 10  # scores that agree in so many digits are a tie: the order of additions must not decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Strategies with the batch they were evaluated at, their score (less is better), time and memory.

    `least` is the score that each would have if all of its memory were the device's own.
    """

    strategies: Strategies
    global_batch: Ints
    score: Array
    step_s: Array
    total_bytes: Array
    least: Array

    def __len__(self) -> int:
        return len(self.score)

    def take(self, where: Ints | NDArray[np.bool_] | slice) -> "Candidates":
        """The candidates at some indices."""
        return Candidates(
            strategies=self.strategies.take(where),
            global_batch=self.global_batch[where],
            score=self.score[where],
            step_s=self.step_s[where],
            total_bytes=self.total_bytes[where],
            least=self.least[where],
        )


def join_candidates(parts: Iterable[Candidates]) -> Candidates:
    """One batch of the candidates of several."""
    listed = list(parts)
    return Candidates(
        strategies=join_strategies(each.strategies for each in listed),
        global_batch=np.concatenate([each.global_batch for each in listed]),
        score=np.concatenate([each.score for each in listed]),
        step_s=np.concatenate([each.step_s for each in listed]),
        total_bytes=np.concatenate([each.total_bytes for each in listed]),
        least=np.concatenate([each.least for each in listed]),
    )


def best(candidates: Candidates, count: int) -> Candidates:
    """The `count` best in order: by score, then time, then each knob, however they were ordered before."""
    if len(candidates) > 4 * count:
        limit = np.partition(candidates.score, count - 1)[count - 1]
        candidates = candidates.take(candidates.score <= limit * (1.0 + 10.0 ** (1 - _DIGITS)))
    knobs = [getattr(candidates.strategies, field.name) for field in fields(Strategies)]
    keys = [rounded(candidates.score), rounded(candidates.step_s), candidates.global_batch, *knobs]
    return candidates.take(np.lexsort(keys[::-1])[:count])


def by_memory(candidates: Candidates) -> Candidates:
    """The one that needs the fewest bytes, ties broken as ever."""
    return best(replace(candidates, score=candidates.total_bytes), 1)


def rounded(values: Array) -> Array:
    """Values to so many significant digits."""
    values = np.minimum(values, 1e300)
    scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.maximum(np.abs(values), 1e-300))))
    return np.asarray(np.round(values * scale) / scale)


def _time(job: Job, estimates: Estimates) -> Array:
    """Seconds per token."""
    return _seconds_per_token(job, estimates.step_s)


def _seconds_per_token(job: Job, step_s: Array) -> Array:
    return step_s / (job.global_batch * job.seq)


def _cost(job: Job, estimates: Estimates) -> Array:
    """Dollars per token."""
    return _time(job, estimates) * _dollars_per_s(job)


def _dollars_per_s(job: Job) -> float:
    return job.cluster.count * job.cluster.device.price_per_hour / 3600.0


def _energy(job: Job, estimates: Estimates) -> Array:
    """Joules per token."""
    busy = estimates.busy_s / estimates.step_s
    # Nearly all of the busy time is of matrix units, and in the rest of it devices talk or wait.
    activity = Activity(matrix=0.9 * busy, memory=0.1 * busy, link=1.0 - busy)
    return _time(job, estimates) * power_w(job.cluster, activity)


def _memory(job: Job, estimates: Estimates) -> Array:
    """Bytes on the fullest device: the fewer, the more head-room."""
    return estimates.total_bytes


Objective = Callable[[Job, Estimates], Array]
OBJECTIVES: Mapping[str, Objective] = {"time": _time, "cost": _cost, "energy": _energy, "memory": _memory}


# Objectives that are known, but for what power adds, once a step's time is: a shorter one is no worse.
BOUNDED_BY_TIME: Mapping[str, Callable[[Job, Array], Array]] = {
    "time": _seconds_per_token,
    "cost": lambda job, step_s: _seconds_per_token(job, step_s) * _dollars_per_s(job),
}


def objective(name: str) -> Objective:
    """The score of this name."""
    if name not in OBJECTIVES:
        raise UnknownName("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
