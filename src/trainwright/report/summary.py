"""The numbers of a prediction that people ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from trainwright.cluster.power import activity_of, device_w, power_w
from trainwright.economics.goodput import Goodput
from trainwright.estimate.step import estimate
from trainwright.estimate.types import COMMUNICATION, Estimates, Job
from trainwright.model.graph import Block, Op, is_layer
from trainwright.model.totals import forward_flops, model_flops
from trainwright.plan.recompute_modules import recomputed
from trainwright.plan.strategy import Strategies, Strategy
from trainwright.report.budget import Budget, Terms, budget_of, goodput_of

_COMPUTE = ("matmul", "attention", "streaming", "recompute")


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
    capacity_bytes: float  # of the device's own memory and of expanded tiers
    own_bytes: float  # of the device's own memory
    low_bytes: float  # nine in ten measured peaks lie between these
    high_bytes: float
    oom_risk: float  # the probability that it runs out of memory
    host_bytes: float
    tiers: Mapping[str, Mapping[str, float]]  # by expanded tier: bytes of each part, and a step's traffic
    power_w: float  # of the whole cluster, at the meter
    device_w: float  # of one device
    joules_per_token: float
    tokens_per_joule: float
    goodput: Goodput | None  # nothing, if no interruptions are asked about
    effective_tokens_per_s: float
    budget: Budget


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
    needed_bytes = float(result.total_bytes[index])
    low_bytes, high_bytes = terms.memory_spread.bounds(needed_bytes)
    batch, cluster = int(job.global_batch), job.cluster
    time = {name: float(values[index]) for name, values in result.time_s.items()}
    tokens_per_s = batch * job.seq / step
    useful = model_flops(job.graph, batch, job.seq)
    rate = cluster.count * cluster.device.peak(strategy.precision) * step
    sent = {name: float(values[index]) for name, values in result.communication_s.items()}
    activity = activity_of(_of_mean_device(time, float(result.busy_s[index])), sent, step)
    power = float(power_w(cluster, activity))
    interrupted = goodput_of(job, strategy.precision, step, terms)
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
        communication_s=sent,
        memory_bytes={name: float(values[index]) for name, values in result.memory_bytes.items()},
        total_bytes=needed_bytes,
        low_bytes=low_bytes,
        high_bytes=high_bytes,
        oom_risk=terms.memory_spread.oom_risk(needed_bytes, cluster.capacity_bytes),
        capacity_bytes=cluster.capacity_bytes,
        own_bytes=cluster.device.memory[0].usable_bytes,
        host_bytes=float(result.host_bytes[index]),
        tiers={
            tier.name: {
                part: float(each[index])
                for (name, part), each in result.tier_bytes.items()
                if name == tier.name
            }
            for tier in cluster.expanded
        },
        power_w=power,
        device_w=float(device_w(cluster, activity)),
        joules_per_token=power / tokens_per_s,
        tokens_per_joule=tokens_per_s / power if power else inf,
        goodput=interrupted,
        effective_tokens_per_s=effective,
        budget=budget_of(batch * job.seq, (tokens_per_s, effective), power, cluster.count, terms),
    )


def _of_mean_device(time_s: Mapping[str, float], busy_s: float) -> dict[str, float]:
    """The parts of the busiest stage's time, with as much compute as the mean device has."""
    own_s = sum(time_s[name] for name in _COMPUTE)
    share = min(busy_s / own_s, 1.0) if own_s else 1.0
    return {name: seconds * (share if name in _COMPUTE else 1.0) for name, seconds in time_s.items()}


def recomputed_flops(job: Job, strategy: Strategy) -> float:
    """FLOPs that recomputation adds to a step: of a layer's forward, or of what its modules run again."""
    batch = int(job.global_batch)
    if strategy.recompute == "none":
        return 0.0
    layers = [s for s in job.graph.segments if is_layer(s.block)]
    body = replace(job.graph, segments=tuple(layers))
    if strategy.recompute == "full":
        per_stage = sum(segment.count for segment in layers) / strategy.pp
        share = min(strategy.recompute_layers / per_stage, 1.0) if strategy.recompute_layers else 1.0
        return share * forward_flops(body, batch, job.seq)
    again = [replace(s, block=replace(s.block, ops=_ops_again(s.block, strategy.recompute))) for s in layers]
    return forward_flops(replace(job.graph, segments=tuple(again)), batch, job.seq)


def _ops_again(block: Block, recompute: str) -> tuple[Op, ...]:
    return tuple(op for run in recomputed(block, recompute).runs for op in run)


__all__ = ["Budget", "Summary", "Terms", "recomputed_flops", "summarize"]
