"""Step time of many strategies: stages, pipeline, data parallelism, optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, send_s, span
from trainwright.estimate.layers import Part, model_parts
from trainwright.estimate.memory import gradient_sizes, host_bytes, memory_parts, owned_parameters
from trainwright.estimate.network import links as network_links
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.stages import Stages, stage_layout
from trainwright.estimate.types import COMMUNICATION, MEMORY, TIMES, Estimates, Job
from trainwright.plan.strategy import OFFLOADS, RECOMPUTES, SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 1 << 15  # strategies evaluated together: their arrays stay in cache


def estimate(job: Job, strategies: Strategies) -> Estimates:
    """Step time and memory of every strategy."""
    shapes, where = distinct_shapes(strategies)
    links = network_links(job)
    layers, layer, first, last = model_parts(job, links, shapes)
    chunks = [
        _estimate_chunk(
            _Context(job=job, links=links, layers=layers, layer=layer, first=first, last=last,
                     strategies=strategies.take(slice(at, at + _CHUNK)), where=where[at : at + _CHUNK],
                     global_batch=_part(job.global_batch, slice(at, at + _CHUNK)))
        )
        for at in range(0, len(strategies), _CHUNK)
    ]  # fmt: skip
    return _joined(chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """Everything that one chunk of strategies is evaluated with."""

    job: Job
    links: Sequence[Link]
    layers: int
    layer: Part
    first: Part
    last: Part
    strategies: Strategies
    where: Ints
    global_batch: int | Ints


def _part(batch: int | Ints, where: slice) -> int | Ints:
    return batch if isinstance(batch, int) else batch[where]


def _estimate_chunk(context: _Context) -> Estimates:
    job, strategies, at = context.job, context.strategies, context.where
    head = context.last.costs.dense_parameters[at] / context.layer.costs.dense_parameters[at]
    stages = stage_layout(
        context.layers, context.global_batch, strategies, head if job.stack.balanced_stages else None
    )
    layer = _Layer.of(context)
    first = _stage_s(context, stages.first, layer, context.first)
    last = _stage_s(context, stages.last, layer, context.last)
    middle = stages.middle * layer.step_s
    busiest = np.maximum(np.maximum(first, last), np.where(strategies.pp > 2, middle, 0.0))
    whole = np.where(
        strategies.pp == 1,
        stages.middle * layer.step_s + _end_s(context.first, at) + _end_s(context.last, at),
        (context.layers * layer.step_s) + _end_s(context.first, at) + _end_s(context.last, at),
    )
    busiest = np.where(strategies.pp == 1, whole, busiest)
    send, send_all = _sends_s(context)
    wait = _pipeline_wait_s(context, stages)
    per_microbatch = busiest + send + wait
    bubble = _bubble_s(strategies, whole - busiest, stages, layer, send)
    dp, dp_all = _data_parallel_s(context, stages, layer)
    optimizer = _optimizer_s(context, stages)
    step = stages.microbatches * per_microbatch + bubble + dp + optimizer + job.stack.step_s
    time = _breakdown(context, stages, layer, busiest) | {
        "pp": stages.microbatches * (send + wait),
        "bubble": bubble,
        "dp": dp + stages.microbatches * stages.middle * layer.gather_s,
        "optimizer": optimizer,
        "overhead": np.full(len(strategies), job.stack.step_s),
    }
    time["launch"] = np.maximum(step - sum(time.values()), 0.0)
    communication = _communication(context, stages, send_all, dp_all + stages.microbatches * layer.gather_all_s * stages.middle)
    memory = memory_parts(job, strategies, stages, _columns(context.layer, at), _columns(context.first, at), _columns(context.last, at))
    total = sum(memory.values(), start=np.zeros(1))
    host = host_bytes(job, strategies, stages, _columns(context.layer, at))
    tiers = job.cluster.device.memory
    room = tiers[1].capacity_bytes if len(tiers) > 1 else 0.0
    return Estimates(
        step_s=step,
        time_s=time,
        communication_s=communication,
        memory_bytes=memory,
        total_bytes=total,
        host_bytes=host,
        feasible=(total <= tiers[0].capacity_bytes) & (host <= room) & ~stages.empty,
        hardware_flops=np.zeros(len(strategies)),
    )


def _columns(part: Part, at: Ints) -> Mapping[str, Array]:
    costs = part.costs
    names = ("saved_bytes", "selective_bytes", "input_bytes", "dense_parameters", "expert_parameters", "hidden_bytes", "tp_reductions")
    return {name: getattr(costs, name)[at] for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """The mean layer of each strategy: times per microbatch, ZeRO-3 gathers and recomputation included."""

    step_s: Array
    forward_s: Array
    backward_s: Array  # recomputation included
    weight_s: Array  # of the backward, what only weights need
    recompute_s: Array
    gather_s: Array  # exposed ZeRO-3 communication
    gather_all_s: Array

    @staticmethod
    def of(context: _Context) -> "_Layer":
        strategies, at, layer = context.strategies, context.where, context.layer
        forward, backward = layer.forward_s[at], layer.backward_s[at]
        share = np.where(
            strategies.recompute_layers > 0,
            np.minimum(strategies.recompute_layers * strategies.pp / context.layers, 1.0),
            1.0,
        )
        full = strategies.recompute == RECOMPUTES.index("full")
        selective = strategies.recompute == RECOMPUTES.index("selective")
        recompute = np.where(full, share * forward, np.where(selective, layer.costs.selective_s[at], 0.0))
        gather_f, gather_b = _zero3_layer_s(context)
        overlap = strategies.overlap * context.job.stack.dp_overlap
        behind_f = np.minimum(gather_f * overlap, forward)
        behind_b = np.minimum(gather_b * overlap, backward + recompute)
        slow = context.job.stack.interference
        exposed = gather_f - behind_f + gather_b - behind_b + slow * (behind_f + behind_b)
        return _Layer(
            step_s=forward + backward + recompute + exposed,
            forward_s=forward + gather_f - behind_f,
            backward_s=backward + recompute + gather_b - behind_b,
            weight_s=layer.costs.matmul_weight_s[at],
            recompute_s=recompute,
            gather_s=exposed,
            gather_all_s=gather_f + gather_b,
        )


def _end_s(part: Part, at: Ints) -> Array:
    return part.forward_s[at] + part.backward_s[at]


def _stage_s(context: _Context, layers: Array, layer: _Layer, end: Part) -> Array:
    return layers * layer.step_s + _end_s(end, context.where)


def _shard_ranks(strategies: Strategies) -> Array:
    """Ranks that share one copy of the sharded state."""
    ranks = strategies.dp * strategies.cp
    return np.where(strategies.shard > 0, np.minimum(strategies.shard, ranks), ranks).astype(float)


def _zero3_layer_s(context: _Context) -> tuple[Array, Array]:
    """Gathers of one layer's weights forward; gathers and gradient scatters backward, per microbatch."""
    strategies, at, costs = context.strategies, context.where, context.layer.costs
    if not (strategies.zero == 3).any():
        return np.zeros(len(strategies)), np.zeros(len(strategies))
    ranks = _shard_ranks(strategies)
    where = span(context.links, ranks, strategies.tp.astype(float))
    weights = costs.dense_parameters[at] + costs.expert_parameters[at]
    gather = all_gather_s(context.links, where, 2.0 * weights)
    scatter = all_gather_s(context.links, where, gradient_sizes(context.job.stack, strategies)[1] * weights)
    on = (strategies.zero == 3) & (ranks > 1)
    return np.where(on, gather, 0.0), np.where(on, gather + scatter, 0.0)


def _sends_s(context: _Context) -> tuple[Array, Array]:
    """Activations to the next stage and gradients back, per microbatch: exposed, and in all."""
    strategies, at = context.strategies, context.where
    stride = (strategies.tp * strategies.cp * strategies.dp).astype(float)
    payload = context.layer.costs.hidden_bytes[at] / strategies.tp
    both = 2.0 * strategies.vpp * (send_s(context.links, stride, payload) + context.job.stack.send_s)
    both = np.where(strategies.pp > 1, both, 0.0)
    return both * (1.0 - context.job.stack.pp_overlap * strategies.overlap), both


def _pipeline_wait_s(context: _Context, stages: Stages) -> Array:
    """What some stacks lose per microbatch once there is a pipeline: see Stack.pipeline_tp_s and pipeline_stall_s."""
    strategies, stack = context.strategies, context.job.stack
    nodes = strategies.dp * strategies.tp * strategies.cp * strategies.pp / context.job.cluster.node_size
    contention = stack.pipeline_tp_s * stages.middle * np.where(strategies.tp > 1, strategies.tp, 0)
    stall = stack.pipeline_stall_s * (nodes / 64.0) ** 8
    return np.where(strategies.pp > 1, contention + stall, 0.0)


def _bubble_s(strategies: Strategies, others: Array, stages: Stages, layer: _Layer, send: Array) -> Array:
    """Waiting for the pipeline to fill and drain: the other stages' times once, divided by interleaving."""
    fill = (others + (strategies.pp - 1) * send) / strategies.vpp
    saved = 2.0 * (strategies.pp - 1) * stages.middle * layer.weight_s / strategies.vpp
    zero_bubble = strategies.schedule == SCHEDULES.index("zb")
    return np.where(zero_bubble, np.maximum(fill - saved, 0.0), fill)


def _data_parallel_s(context: _Context, stages: Stages, layer: _Layer) -> tuple[Array, Array]:
    """Gradient reduction (and for ZeRO-1/2 the gather of updated weights): exposed, and in all."""
    strategies, at, stack = context.strategies, context.where, context.job.stack
    dense, expert = owned_parameters(stages, _columns(context.layer, at), _columns(context.first, at), _columns(context.last, at), strategies)
    tp, ep = strategies.tp.astype(float), (strategies.ep * strategies.etp).astype(float)
    ranks = (strategies.dp * strategies.cp).astype(float)
    total = _reduce_s(context, dense, ranks, tp)
    if expert.any():
        total = total + _reduce_s(context, expert, np.maximum(ranks * tp / ep, 1.0), ep)
    total = np.where(strategies.zero == 3, _replica_reduce_s(context, dense + expert), total)
    sharded = (strategies.zero == 1) | (strategies.zero == 2)
    total = total + np.where(sharded & (ranks > 1), stages.middle * stack.zero_layer_s, 0.0)
    room = stages.middle * layer.backward_s
    share = np.where(sharded, stack.zero_overlap, stack.dp_overlap)
    hidden = np.minimum(total * share * strategies.overlap, room)
    return total - hidden + stack.interference * hidden, total


def _reduce_s(context: _Context, parameters: Array, ranks: Array, stride: Array) -> Array:
    strategies, stack, links = context.strategies, context.job.stack, context.links
    where = span(links, ranks, stride)
    reduce_bytes = gradient_sizes(stack, strategies)[1]
    plain = all_reduce_s(links, where, reduce_bytes * parameters)
    sharded = all_gather_s(links, where, reduce_bytes * parameters) + all_gather_s(links, where, 2.0 * parameters)
    return np.where(strategies.zero == 0, plain, sharded)


def _replica_reduce_s(context: _Context, parameters: Array) -> Array:
    """HSDP: each shard's gradients are summed over the replicas of the shard group."""
    strategies, links = context.strategies, context.links
    shard = _shard_ranks(strategies)
    replicas = np.maximum(strategies.dp * strategies.cp / shard, 1.0)
    where = span(links, replicas, strategies.tp * shard)
    return all_reduce_s(links, where, gradient_sizes(context.job.stack, strategies)[1] * parameters / shard)


def _optimizer_s(context: _Context, stages: Stages) -> Array:
    """The update is traffic: states and gradient read, states and weight written; over the host's link if offloaded."""
    job, strategies, at = context.job, context.strategies, context.where
    dense, expert = owned_parameters(stages, _columns(context.layer, at), _columns(context.first, at), _columns(context.last, at), strategies)
    shards = np.where(strategies.zero > 0, _shard_ranks(strategies), 1.0)
    owned = dense / shards + expert / np.maximum(shards * strategies.tp / (strategies.ep * strategies.etp), 1.0)
    traffic = 2.0 * job.stack.optimizer_bytes + 2.0 * gradient_sizes(job.stack, strategies)[0] + 2.0
    local = owned * traffic / (job.cluster.device.memory[0].bytes_per_s * job.efficiency.memory)
    offloaded = np.isin(strategies.offload, [OFFLOADS.index("optimizer"), OFFLOADS.index("both")])
    return local + np.where(offloaded, owned * (gradient_sizes(job.stack, strategies)[0] + 2.0) / job.cluster.network.host_bytes_per_s, 0.0)


def _breakdown(context: _Context, stages: Stages, layer: _Layer, busiest: Array) -> dict[str, Array]:
    """Where the busiest stage's device spends its time over all microbatches."""
    at = context.where
    runs = stages.microbatches
    ends = np.where(context.strategies.pp == 1, 1.0, 0.5)

    def total(field: str) -> Array:
        body = getattr(context.layer.costs, field)[at] * stages.middle
        tips = getattr(context.first.costs, field)[at] + getattr(context.last.costs, field)[at]
        return np.asarray(runs * (body + ends * tips))

    return {
        "matmul": total("matmul_forward_s") + total("matmul_data_s") + total("matmul_weight_s"),
        "attention": total("attention_forward_s") + total("attention_backward_s"),
        "streaming": total("streaming_forward_s") + total("streaming_backward_s"),
        "recompute": runs * stages.middle * layer.recompute_s,
        "tp": runs * stages.middle * context.layer.tp_s[at],
        "cp": runs * stages.middle * 3.0 * context.layer.cp_s[at],
        "ep": runs * stages.middle * 2.0 * context.layer.ep_s[at],
    }


def _communication(context: _Context, stages: Stages, send: Array, dp: Array) -> dict[str, Array]:
    at, layer = context.where, context.layer
    body = stages.microbatches * stages.middle
    return {
        "tp": body * layer.tp_all_s[at],
        "cp": body * 3.0 * layer.cp_all_s[at],
        "ep": body * 2.0 * layer.ep_all_s[at],
        "pp": stages.microbatches * send,
        "dp": dp,
    }


def _joined(chunks: Sequence[Estimates]) -> Estimates:
    def join(name: str, keys: Sequence[str]) -> dict[str, Array]:
        return {key: np.concatenate([np.broadcast_to(getattr(c, name)[key], len(c)) for c in chunks]) for key in keys}

    return Estimates(
        step_s=np.concatenate([c.step_s for c in chunks]),
        time_s=join("time_s", TIMES),
        communication_s=join("communication_s", COMMUNICATION),
        memory_bytes=join("memory_bytes", MEMORY),
        total_bytes=np.concatenate([c.total_bytes for c in chunks]),
        host_bytes=np.concatenate([c.host_bytes for c in chunks]),
        feasible=np.concatenate([c.feasible for c in chunks]),
        hardware_flops=np.concatenate([c.hardware_flops for c in chunks]),
    )
