"""The numbers of a prediction that people ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainwright.cluster.power import Activity, device_w, power_w
from trainwright.cost.load import Interval
from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, Estimates, Job
from trainwright.model.graph import is_layer
from trainwright.model.totals import forward_flops, model_flops
from trainwright.plan.strategy import Strategies, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a number of tokens takes on the whole cluster."""

    tokens: float
    days: float
    dollars: float
    kwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One strategy's prediction.

    `mfu` counts model FLOPs as Megatron-LM and PaLM do (6 N D plus attention over every key, 12 L h s D),
    against the peak of the strategy's precision; `hfu` adds what is computed again. `time_s` are the parts
    of the step (of communication, the exposed part), `communication_s` the whole communication.
    """

    strategy: Strategy
    global_batch: int
    seq: int
    devices: int
    step_s: float
    low_s: float
    high_s: float
    tokens_per_s: float
    tokens_per_s_per_device: float
    mfu: float
    hfu: float
    exposed_fraction: float
    time_s: Mapping[str, float]
    communication_s: Mapping[str, float]
    memory_bytes: Mapping[str, float]
    total_bytes: float
    capacity_bytes: float
    host_bytes: float
    power_w: float  # of the whole cluster, at the meter
    device_w: float  # of one device
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What turns times into ranges and money: the interval of a prediction, tokens, a price."""

    interval: Interval
    tokens: float
    dollars_per_device_hour: float


def summarize(job: Job, strategies: Strategies, terms: Terms) -> tuple[Summary, ...]:
    """A summary of each strategy; `job.global_batch` is one batch, or one for each."""
    result = estimate(job, strategies)
    batches = np.broadcast_to(np.asarray(job.global_batch), len(strategies))
    return tuple(
        _summary(replace(job, global_batch=int(batches[index])), strategies[index], result, index, terms)
        for index in range(len(strategies))
    )


def _summary(job: Job, strategy: Strategy, result: Estimates, index: int, terms: Terms) -> Summary:
    step = float(result.step_s[index])
    batch, cluster = int(job.global_batch), job.cluster
    time = {name: float(values[index]) for name, values in result.time_s.items()}
    tokens_per_s = batch * job.seq / step
    useful = model_flops(job.graph, batch, job.seq)
    rate = cluster.count * cluster.device.peak(strategy.precision) * step
    activity = activity_of(time, {n: float(v[index]) for n, v in result.communication_s.items()}, step)
    power = float(power_w(cluster, activity))
    return Summary(
        strategy=strategy,
        global_batch=batch,
        seq=job.seq,
        devices=cluster.count,
        step_s=step,
        low_s=step * terms.interval.low,
        high_s=step * terms.interval.high,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_device=tokens_per_s / cluster.count,
        mfu=useful / rate,
        hfu=(useful + recomputed_flops(job, strategy)) / rate,
        exposed_fraction=sum(time[name] for name in COMMUNICATION) / step,
        time_s=time,
        communication_s={name: float(values[index]) for name, values in result.communication_s.items()},
        memory_bytes={name: float(values[index]) for name, values in result.memory_bytes.items()},
        total_bytes=float(result.total_bytes[index]),
        capacity_bytes=cluster.device.memory[0].capacity_bytes,
        host_bytes=float(result.host_bytes[index]),
        power_w=power,
        device_w=float(device_w(cluster, activity)),
        budget=_budget(tokens_per_s, power, cluster.count, terms),
    )


def activity_of(time_s: Mapping[str, float], communication_s: Mapping[str, float], step_s: float) -> Activity:
    """What a device does in a step, from its parts; communication counts whether it is hidden or not."""
    matrix_s = sum(time_s.get(name, 0.0) for name in ("matmul", "attention", "recompute"))
    memory_s = sum(time_s.get(name, 0.0) for name in ("streaming", "optimizer", "offload"))
    link_s = sum(communication_s.values())
    return Activity(matrix=matrix_s / step_s, memory=memory_s / step_s, link=link_s / step_s)


def _budget(tokens_per_s: float, power: float, devices: int, terms: Terms) -> Budget:
    seconds = terms.tokens / tokens_per_s
    return Budget(
        tokens=terms.tokens,
        days=seconds / 86400.0,
        dollars=seconds / 3600.0 * devices * terms.dollars_per_device_hour,
        kwh=seconds * power / 3.6e6,
    )


def recomputed_flops(job: Job, strategy: Strategy) -> float:
    """FLOPs that recomputation adds to a step: of a layer's forward, or selectively of unfused attention."""
    batch = int(job.global_batch)
    if strategy.recompute == "none":
        return 0.0
    layers = [s for s in job.graph.segments if is_layer(s.block)]
    body = replace(job.graph, segments=tuple(layers))
    if strategy.recompute == "full":
        per_stage = sum(segment.count for segment in layers) / strategy.pp
        share = min(strategy.recompute_layers / per_stage, 1.0) if strategy.recompute_layers else 1.0
        return share * forward_flops(body, batch, job.seq)
    if job.stack.attention != "unfused":
        return 0.0
    matrices = [
        replace(s, block=replace(s.block, ops=tuple(op for op in s.block.ops if op.kind == "attention")))
        for s in layers
    ]
    return forward_flops(replace(job.graph, segments=tuple(matrices)), batch, job.seq)
