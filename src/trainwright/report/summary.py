"""The numbers of a prediction that people ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from trainwright.cluster.power import Activity, device_w, power_w
from trainwright.cost.load import Interval
from trainwright.cost.state import weight_sizes
from trainwright.economics.batch import batch_charge
from trainwright.economics.goodput import DAY_S, Goodput, Reliability, Run, goodput
from trainwright.economics.money import GRID_KG_PER_KWH
from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, Estimates, Job
from trainwright.model.graph import is_layer, parameters
from trainwright.model.totals import forward_flops, model_flops
from trainwright.plan.strategy import Strategies, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run takes on the whole cluster, interruptions included.

    `least_tokens` would do at a small batch, `tokens` are trained on; `steady_days` would pass without
    interruptions.
    """

    tokens: float
    least_tokens: float
    days: float
    steady_days: float
    device_hours: float
    dollars: float
    dollars_per_million_tokens: float
    kwh: float
    co2e_kg: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One strategy's prediction.

    `mfu` counts model FLOPs as Megatron-LM and PaLM do (6 N D plus attention over every key, 12 L h s D),
    against the peak of the strategy's precision; `hfu` adds what is computed again. `time_s` are the parts
    of the step (of communication, the exposed part), `communication_s` the whole communication. Of speeds
    only `effective_tokens_per_s` counts interruptions and stragglers; energy per token is that of a step.
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
    joules_per_token: float
    tokens_per_joule: float
    goodput: Goodput | None  # nothing, if no interruptions are asked about
    effective_tokens_per_s: float
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What turns times into ranges and money: the interval of a prediction, tokens, prices, interruptions.

    A batch is charged with more tokens only if a critical batch is given, in tokens.
    """

    interval: Interval
    tokens: float
    dollars_per_device_hour: float
    dollars_per_kwh: float = 0.0  # on top: zero where the price of an hour includes electricity
    grid_kg_per_kwh: float = GRID_KG_PER_KWH
    reliability: Reliability | None = None
    critical_batch_tokens: float = inf


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
    interrupted = _goodput(job, strategy, step, terms)
    effective = tokens_per_s * (interrupted.speed if interrupted else 1.0)
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
        joules_per_token=power / tokens_per_s,
        tokens_per_joule=tokens_per_s / power if power else inf,
        goodput=interrupted,
        effective_tokens_per_s=effective,
        budget=_budget(batch * job.seq, (tokens_per_s, effective), power, cluster.count, terms),
    )


def activity_of(time_s: Mapping[str, float], communication_s: Mapping[str, float], step_s: float) -> Activity:
    """What a device does in a step, from its parts; communication counts whether it is hidden or not."""
    matrix_s = sum(time_s.get(name, 0.0) for name in ("matmul", "attention", "recompute"))
    memory_s = sum(time_s.get(name, 0.0) for name in ("streaming", "optimizer", "offload"))
    link_s = sum(communication_s.values())
    return Activity(matrix=matrix_s / step_s, memory=memory_s / step_s, link=link_s / step_s)


def _goodput(job: Job, strategy: Strategy, step_s: float, terms: Terms) -> Goodput | None:
    """How interruptions bear on a strategy; a checkpoint holds weights and optimizer state."""
    if terms.reliability is None:
        return None
    weight, optimizer = weight_sizes(job.stack, np.array(strategy.precision == "fp32"))
    run = Run(
        devices=job.cluster.count,
        nodes=-(-job.cluster.count // job.cluster.node_size),
        step_s=step_s,
        state_bytes=float(weight + optimizer) * parameters(job.graph),
    )
    return goodput(run, terms.reliability)


def _budget(
    batch_tokens: int, rates: tuple[float, float], power: float, devices: int, terms: Terms
) -> Budget:
    """Of a run at a steady and an effective rate of tokens; the time that is lost draws the same power."""
    tokens = terms.tokens * batch_charge(batch_tokens, terms.critical_batch_tokens)
    steady_s, seconds = (tokens / rate if rate else inf for rate in rates)
    hours, kwh = seconds / 3600.0 * devices, seconds * power / 3.6e6
    dollars = hours * terms.dollars_per_device_hour + kwh * terms.dollars_per_kwh
    return Budget(
        tokens=tokens,
        least_tokens=terms.tokens,
        days=seconds / DAY_S,
        steady_days=steady_s / DAY_S,
        device_hours=hours,
        dollars=dollars,
        dollars_per_million_tokens=dollars / tokens * 1e6,
        kwh=kwh,
        co2e_kg=kwh * terms.grid_kg_per_kwh,
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
