"""The columns of a result: what is told of one strategy on one cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.power import activity_of, power_w
from trainwright.cost.load import Interval
from trainwright.estimate.types import COMMUNICATION, MEMORY, TIMES, Estimates, Job
from trainwright.model.graph import is_layer
from trainwright.model.totals import model_flops
from trainwright.plan.strategy import CHOICES, PRECISIONS, RECOMPUTES, Strategies, Strategy
from trainwright.report.summary import recomputed_flops
from trainwright.search.find import fits

Array = NDArray[np.float64]
_KNOBS = tuple(field.name for field in fields(Strategies))
_COMPUTE = ("matmul", "attention", "streaming", "recompute", "launch")

# Every column, in order, with its type; those of the second half follow from an estimate in detail.
RESULTS: Mapping[str, str] = {
    "feasible": "bool", "why": "text", "evaluated": "int", "fitting": "int",
    "strategy": "text", "devices": "int", "global_batch": "int", "tokens_per_sequence": "int",
    **{knob: "text" if knob in CHOICES else "int" for knob in _KNOBS},
    "step_s": "float", "tokens_per_s": "float", "tokens_per_s_per_device": "float", "mfu": "float",
    "hfu": "float", "memory_bytes": "float", "host_bytes": "float",
    **{f"memory_{part}_bytes": "float" for part in MEMORY},
    "low_s": "float", "high_s": "float",
    "compute_s": "float", "exposed_communication_s": "float", "bubble_s": "float",
    "communication_s": "float", "exposed_fraction": "float",
    **{f"time_{part}_s": "float" for part in TIMES},
    **{f"communication_{part}_s": "float" for part in COMMUNICATION},
    "power_w": "float", "joules_per_token": "float", "dollars_per_hour": "float",
    "dollars_per_million_tokens": "float",
}  # fmt: skip
OF_POINTS = ("why", "evaluated", "fitting")  # told of a design point, not of a strategy
_IN_DETAIL = frozenset(name for name in list(RESULTS)[list(RESULTS).index("compute_s") :]) - {
    "dollars_per_hour"
}
_PLAIN = (
    "feasible", "strategy", "devices", "global_batch", *_KNOBS, "step_s", "tokens_per_s",
    "tokens_per_s_per_device", "mfu", "memory_bytes", "host_bytes",
)  # fmt: skip
USUAL: Mapping[str, tuple[str, ...]] = {"best": tuple(RESULTS), "all": _PLAIN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Strategies on clusters, pair by pair, with their estimates; the job has figures for each pair."""

    job: Job
    strategies: Strategies
    estimates: Estimates
    interval: Interval
    dollars_per_kwh: float
    filled_share: float = 1.0  # of usable memory that a feasible strategy may be predicted to fill


def needs_detail(names: "frozenset[str] | tuple[str, ...]") -> bool:
    """Whether some columns need what a step's time is made of."""
    return not _IN_DETAIL.isdisjoint(names)


def result_arrays(pairs: Pairs, names: "frozenset[str] | tuple[str, ...]") -> dict[str, NDArray[Any]]:
    """Columns by name, without those of design points: numbers, flags, and codes of knobs' choices."""
    columns = _plain(pairs)
    if needs_detail(names):
        columns |= _detailed(pairs, columns)
    size = len(pairs.strategies)
    return {
        name: np.broadcast_to(columns[name], size) for name in RESULTS if name in names and name in columns
    }


def _plain(pairs: Pairs) -> dict[str, Any]:
    job, estimates, cluster = pairs.job, pairs.estimates, pairs.job.cluster
    step, batch = estimates.step_s, np.asarray(job.global_batch)
    rate = batch * job.seq / step
    useful = model_flops(job.graph, int(job.global_batch), job.seq)
    possible = cluster.count * _peaks(pairs) * step
    return {
        "feasible": fits(job, estimates, pairs.filled_share), "devices": np.int64(cluster.count),
        "global_batch": batch, "tokens_per_sequence": np.int64(job.seq),
        **{knob: getattr(pairs.strategies, knob) for knob in _KNOBS},
        "step_s": step, "tokens_per_s": rate, "tokens_per_s_per_device": rate / cluster.count,
        "mfu": useful / possible, "hfu": (useful + _again(pairs)) / possible,
        "memory_bytes": estimates.total_bytes, "host_bytes": estimates.host_bytes,
        **{f"memory_{part}_bytes": each for part, each in estimates.memory_bytes.items()},
        "low_s": step * pairs.interval.low, "high_s": step * pairs.interval.high,
        "dollars_per_hour": np.asarray(cluster.count * cluster.device.price_per_hour),
    }  # fmt: skip


def _detailed(pairs: Pairs, plain: Mapping[str, Any]) -> dict[str, Any]:
    time, moved, step = pairs.estimates.time_s, pairs.estimates.communication_s, pairs.estimates.step_s
    exposed = np.sum([time[name] for name in COMMUNICATION], axis=0)
    power = power_w(pairs.job.cluster, activity_of(time, moved, step))  # type: ignore[arg-type]
    per_hour = plain["dollars_per_hour"] + power / 1e3 * pairs.dollars_per_kwh
    return {
        "compute_s": np.sum([time[name] for name in _COMPUTE], axis=0),
        "exposed_communication_s": exposed,
        "bubble_s": time["bubble"],
        "communication_s": np.sum([moved[name] for name in COMMUNICATION], axis=0),
        "exposed_fraction": exposed / step,
        **{f"time_{part}_s": each for part, each in time.items()},
        **{f"communication_{part}_s": each for part, each in moved.items()},
        "power_w": power,
        "joules_per_token": power / plain["tokens_per_s"],
        "dollars_per_million_tokens": per_hour / 3600.0 / plain["tokens_per_s"] * 1e6,
    }


def _peaks(pairs: Pairs) -> Array:
    """The peak rate of each pair's precision."""
    precision, peaks = pairs.strategies.precision, np.zeros(len(pairs.strategies))
    for code in np.unique(precision):
        peaks = np.where(precision == code, pairs.job.cluster.device.peak(PRECISIONS[code]), peaks)
    return peaks


def _again(pairs: Pairs) -> Array:
    """FLOPs that recomputation adds to a step, as `recomputed_flops` tells them of one strategy."""
    job, strategies = pairs.job, pairs.strategies
    job = replace(job, global_batch=int(job.global_batch))
    chosen, where = np.unique(strategies.recompute, return_inverse=True)
    flops = np.array([recomputed_flops(job, Strategy(recompute=RECOMPUTES[each])) for each in chosen])
    per_stage = sum(each.count for each in job.graph.segments if is_layer(each.block)) / strategies.pp
    counted = strategies.recompute_layers
    share = np.where(counted > 0, np.minimum(counted / per_stage, 1.0), 1.0)
    full = strategies.recompute == RECOMPUTES.index("full")
    return np.asarray(np.where(full, share, 1.0) * flops[where])
