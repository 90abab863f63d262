"""Step time and memory of many strategies, put together from distinct shapes and layouts costed once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.overlap import shown_s
from trainwright.estimate.breakdown import Pieces, breakdown, communication
from trainwright.estimate.layers import Part, model_parts
from trainwright.estimate.layouts import Layouts, distinct_layouts
from trainwright.estimate.memory import (
    MOVES_ACTIVATIONS,
    MOVES_OPTIMIZER,
    Activations,
    activation_table,
    host_bytes,
    in_flight,
    kept_by_layers,
    memory_parts,
)
from trainwright.estimate.network import links as network_links
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.stages import Stages
from trainwright.estimate.types import COMMUNICATION, MEMORY, TIMES, Estimates, Job
from trainwright.plan.strategy import RECOMPUTES, SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 1 << 14  # strategies evaluated together: their arrays stay in cache


def estimate(job: Job, strategies: Strategies, *, detail: bool = True) -> Estimates:
    """Step time and memory of every strategy; with `detail`, also what the time is made of."""
    if not len(strategies):
        return _joined([], detail)
    shapes, shape = distinct_shapes(strategies)
    links = network_links(job)
    layers, *parts = model_parts(job, links, shapes)
    layer, first, last = parts
    layouts, layout = distinct_layouts(job, links, layers, (layer, first, last), strategies, shape)
    table = activation_table(job, layer, first, last, shapes)
    model = _Model(job=job, layers=layers, layer=layer, first=first, last=last, layouts=layouts, table=table)
    every = np.broadcast_to(np.asarray(job.global_batch, dtype=float), len(strategies))
    chunks = [slice(at, at + _CHUNK) for at in range(0, len(strategies), _CHUNK)]
    return _joined(
        [
            _estimate_chunk(model, strategies.take(at), shape[at], layout[at], every[at], detail)
            for at in chunks
        ],
        detail,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """The tables that one job's strategies are put together from."""

    job: Job
    layers: int
    layer: Part
    first: Part
    last: Part
    layouts: Layouts
    table: Activations


def _estimate_chunk(
    model: _Model, strategies: Strategies, shape: Ints, layout: Ints, global_batch: Array, detail: bool
) -> Estimates:
    job, layouts = model.job, model.layouts
    microbatches = global_batch / (strategies.dp * strategies.micro_batch)
    pieces = _pieces(model, strategies, shape, layout, microbatches)
    step = (
        microbatches * (pieces.busiest_s + pieces.send_s + pieces.wait_s + pieces.offload_s)
        + pieces.bubble_s + pieces.reduce_s + pieces.update_s + job.stack.step_s
    )  # fmt: skip
    held, tail = in_flight(strategies, microbatches)
    memory = memory_parts(job, strategies, layouts, layout, model.table, shape, held, tail)
    total = sum(memory.values(), start=np.zeros(1))
    host = host_bytes(strategies, layouts, layout, model.table, shape, held)
    tiers = job.cluster.device.memory
    room = 0.8 * tiers[1].capacity_bytes if len(tiers) > 1 else 0.0  # the rest is the host's own
    arguments = (strategies, model.layer, model.first, model.last, shape, pieces)
    return Estimates(
        step_s=step,
        busy_s=microbatches * pieces.compute_s / strategies.pp,
        time_s=breakdown(job, *arguments, step) if detail else {},
        communication_s=communication(*arguments) if detail else {},
        memory_bytes=memory,
        total_bytes=total,
        host_bytes=host,
        feasible=(total <= tiers[0].capacity_bytes) & (host <= room) & ~layouts.stages.empty[layout],
    )


def _pieces(model: _Model, strategies: Strategies, shape: Ints, layout: Ints, microbatches: Array) -> Pieces:
    """What a step is put together from: times of the mean layer, of stages, of everything around them."""
    job, layouts, layer = model.job, model.layouts, model.layer
    forward, backward = layer.forward_s[shape], layer.backward_s[shape]
    recompute = _recompute_s(model, strategies, shape, forward)
    overlap = strategies.overlap.astype(float) * job.stack.dp_overlap
    gather, gather_all = _exposed_gathers_s(model, layout, overlap, forward, backward + recompute)
    layer_s = forward + backward + recompute + gather
    slack = _slack_s(model, layout, overlap, forward, backward + recompute)
    first = _end_s(model.first, shape, layouts.first_gather_s[layout], overlap, slack, job.stack.interference)
    last = _end_s(model.last, shape, layouts.last_gather_s[layout], overlap, slack, job.stack.interference)
    busiest = _busiest(layouts.stages, layout, strategies.pp, layer_s, (first, last))
    send, send_all = _send_s(model, strategies, shape, layout)
    compute = (
        model.layers * (_device_s(layer, shape) + recompute)
        + _device_s(model.first, shape)
        + _device_s(model.last, shape)
    )
    # A stage that waits gathers meanwhile: its bubble shows of ZeRO-3 only what always blocks or slows.
    excess = gather - _steady_gather_s(model, layout, overlap)
    others = (
        model.layers * layer_s + first + last - busiest.seconds - excess * (model.layers - busiest.layers)
    )
    put_off = layer_s - _layer_without_weights_s(model, layout, shape, overlap, recompute)
    least = np.minimum(forward, layer_s - forward - put_off)
    filled = _filled_s(model, strategies, shape, busiest, microbatches, put_off, least)
    ahead = shown_s(forward, layouts.gather_forward_s[layout], overlap, job.stack.interference)
    away = _offload_s(model, strategies, shape, layout, busiest.seconds, forward + ahead)
    offload = away[0] + away[1]
    # Copies that nothing hides stand in every stage; those back are done while it waits.
    blocked = np.where(strategies.overlap > 0, 0.0, 0.5 * offload)
    bubble = np.maximum((others + (strategies.pp - 1) * (send + blocked)) / strategies.vpp - filled, 0.0)
    moved = MOVES_OPTIMIZER[strategies.offload] * layouts.update_moved_s[layout]
    return Pieces(
        microbatches=microbatches,
        layers=busiest.layers,
        is_first=busiest.is_first,
        is_last=busiest.is_last,
        recompute_s=recompute,
        gather_s=gather,
        gather_all_s=gather_all,
        first_gather_s=layouts.first_gather_s[layout],
        last_gather_s=layouts.last_gather_s[layout],
        overlap=overlap,
        slack_s=slack,
        compute_s=compute,
        busiest_s=busiest.seconds,
        send_s=send,
        send_all_s=send_all,
        wait_s=layouts.wait_s[layout],
        offload_s=offload,
        bubble_s=bubble,
        reduce_s=_reduce_s(model, strategies, layout, (forward, backward), away),
        reduce_all_s=layouts.reduce_s[layout] + layouts.renew_s[layout],
        update_s=layouts.update_s[layout] + moved,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Busiest:
    """The stage with most work: its time per microbatch, its layers, which ends of the model it has."""

    seconds: Array
    layers: Array
    is_first: NDArray[np.bool_]
    is_last: NDArray[np.bool_]


def _busiest(stages: Stages, layout: Ints, pp: Ints, layer_s: Array, ends: tuple[Array, Array]) -> _Busiest:
    first, last = ends
    alone = pp == 1
    at_first = stages.first[layout] * layer_s + first + np.where(alone, last, 0.0)
    at_last = np.where(alone, 0.0, stages.last[layout] * layer_s + last)
    at_middle = np.where(pp > 2, stages.middle[layout] * layer_s, 0.0)
    most = np.maximum(np.maximum(at_first, at_last), at_middle)
    ahead = at_last > at_first
    ends_layers = np.where(ahead, stages.last[layout], stages.first[layout])
    return _Busiest(
        seconds=most,
        layers=np.where(at_middle >= most, stages.middle[layout], ends_layers),
        is_first=(at_middle < most) & ~ahead,
        is_last=((at_middle < most) & ahead) | alone,
    )


def _steady_gather_s(model: _Model, layout: Ints, overlap: Array) -> Array:
    """Of a layer's ZeRO-3 communication, what blocks and what it slows, however long it is."""
    both = model.layouts.gather_forward_s[layout] + model.layouts.gather_backward_s[layout]
    return both * (1.0 - overlap * (1.0 - model.job.stack.interference))


def _device_s(part: Part, shape: Ints) -> Array:
    c = part.costs
    time = (
        c.matmul_forward_s + c.matmul_data_s + c.matmul_weight_s + c.attention_forward_s
        + c.attention_backward_s + c.streaming_forward_s + c.streaming_backward_s
    )  # fmt: skip
    return np.asarray(time[shape])


def _recompute_s(model: _Model, strategies: Strategies, shape: Ints, forward: Array) -> Array:
    """Per layer, on average: everything again where layers recompute fully, or what is cheap to repeat."""
    every = model.layers / strategies.pp
    share = np.where(
        strategies.recompute_layers > 0, np.minimum(strategies.recompute_layers / every, 1.0), 1.0
    )
    full = strategies.recompute == RECOMPUTES.index("full")
    selective = strategies.recompute == RECOMPUTES.index("selective")
    forward = forward / model.job.graph.passes  # of recycled passes, only the last is needed again
    again = model.layer.costs.selective_s[shape] + model.layer.regather_s[shape]
    return np.where(full, share * forward, np.where(selective, again, 0.0))


def _exposed_gathers_s(
    model: _Model, layout: Ints, overlap: Array, forward: Array, backward: Array
) -> tuple[Array, Array]:
    """ZeRO-3 communication of a layer that compute does not hide, interference included; and all of it."""
    ahead, behind = model.layouts.gather_forward_s[layout], model.layouts.gather_backward_s[layout]
    i = model.job.stack.interference
    shown = shown_s(forward, ahead, overlap, i) + shown_s(backward, behind, overlap, i)
    return shown, ahead + behind


def _reduce_s(
    model: _Model,
    strategies: Strategies,
    layout: Ints,
    layer: tuple[Array, Array],
    away: tuple[Array, Array],
) -> Array:
    """What a step shows of its gradient reductions, which the last microbatch's backward hides, and of its
    gathers of new weights, which the next forward hides; the first layer's are beside nothing.

    `layer` is a layer's forward and backward; a pass that waits for copies (`away`) hides as much more.
    """
    layouts, stages = model.layouts, model.layouts.stages
    share = layouts.reduce_overlap[layout] * strategies.overlap
    edge, layers = layouts.edge[layout], np.maximum(stages.middle[layout] - 1.0, 0.0)
    i = model.job.stack.interference
    total = np.zeros(len(strategies))
    inside = layers / np.maximum(stages.middle[layout], 1.0)
    for whole, work, waits, gathers in (
        (layouts.reduce_s[layout], layer[1], away[1], layouts.gather_backward_s[layout]),
        (layouts.renew_s[layout], layer[0], away[0], layouts.gather_forward_s[layout]),
    ):
        # Links that carry ZeRO's own communication are free for this one in what is left.
        own = gathers * strategies.overlap * model.job.stack.dp_overlap
        inner, beside = whole * (1.0 - edge), layers * np.maximum(work - own, 0.0) + inside * waits
        total = total + whole * edge + shown_s(beside, inner, share, i)
        # The last microbatch goes back through stages that are all slowed in turn, the first one forward too.
        slowed = i * np.minimum(inner * share, beside)
        total = total + (strategies.pp - 1) / strategies.vpp * slowed
    return total


def _slack_s(model: _Model, layout: Ints, overlap: Array, forward: Array, backward: Array) -> Array:
    """What a layer's forward and backward could hide beyond the layer's own ZeRO-3 communication."""
    ahead, behind = model.layouts.gather_forward_s[layout], model.layouts.gather_backward_s[layout]
    return np.maximum(forward - ahead * overlap, 0.0) + np.maximum(backward - behind * overlap, 0.0)


def _end_s(
    part: Part, shape: Ints, gather: Array, overlap: Array, slack: Array, interference: float
) -> Array:
    """Forward and backward of one end of the model; its own ZeRO-3 gathers hide beside the next layer too."""
    work = part.forward_s[shape] + part.backward_s[shape]
    return work + shown_s(work + slack, gather, overlap, interference)


def _send_s(model: _Model, strategies: Strategies, shape: Ints, layout: Ints) -> tuple[Array, Array]:
    """Activations to the next stage and gradients back, per microbatch: exposed, and in all."""
    layouts, stack = model.layouts, model.job.stack
    payload = model.layer.costs.hidden_bytes[shape] / strategies.tp
    one = layouts.send_latency_s[layout] + payload * layouts.send_s_per_byte[layout] + stack.send_s
    sends = 1.0 + model.job.graph.passes
    both = np.where(strategies.pp > 1, sends * strategies.vpp * one, 0.0)
    return both * (1.0 - stack.pp_overlap * strategies.overlap), both


def _layer_without_weights_s(
    model: _Model, layout: Ints, shape: Ints, overlap: Array, recompute: Array
) -> Array:
    """A layer whose weight gradients are put off, with what it then shows of ZeRO-3's communication."""
    forward, backward = model.layer.forward_s[shape], model.layer.without_weight_s[shape] + recompute
    return forward + backward + _exposed_gathers_s(model, layout, overlap, forward, backward)[0]


def _filled_s(
    model: _Model,
    strategies: Strategies,
    shape: Ints,
    busiest: _Busiest,
    microbatches: Array,
    put_off: Array,
    least: Array,
) -> Array:
    """What weight gradients fill of the bubble, as in ZB-H1 (Qi et al., 2023).

    Of other stages the bubble shows forwards and gradients of inputs only. The busiest stage puts off its own
    weight gradients by as many microbatches as there are stages after the first, and does them while it would
    wait; a layer's (`put_off`) as far as its forward and its gradients of inputs are as long (`least`).
    """
    if not (strategies.schedule == SCHEDULES.index("zb")).any():
        return np.zeros(len(strategies))
    first, last = (
        part.backward_s[shape] - part.without_weight_s[shape] for part in (model.first, model.last)
    )
    mine = busiest.is_first * first + busiest.is_last * last
    others = (model.layers - busiest.layers) * put_off + first + last - mine
    times = np.minimum(strategies.pp, microbatches) - 1.0
    filled = others + times * (busiest.layers * np.minimum(put_off, least) + mine)
    return np.where(strategies.schedule == SCHEDULES.index("zb"), filled, 0.0)


def _offload_s(
    model: _Model, strategies: Strategies, shape: Ints, layout: Ints, busiest: Array, forward: Array
) -> tuple[Array, Array]:
    """Activations to the host behind forwards, and back behind backwards: what of them is not hidden."""
    moves = MOVES_ACTIVATIONS[strategies.offload]
    if not moves.any():
        return np.zeros(len(strategies)), np.zeros(len(strategies))
    layers, kept = model.layouts.stages.middle[layout], model.table.kept[strategies.recompute, shape]
    body = kept_by_layers(model.table, strategies, shape, layers, kept)
    rate = model.job.cluster.network.host_bytes_per_s * model.job.efficiency.host_link
    moved, on = np.where(moves, body / rate, 0.0), strategies.overlap.astype(float)
    out, i = layers * forward, model.job.stack.interference
    return shown_s(out, moved, on, i), shown_s(np.maximum(busiest - out, 0.0), moved, on, i)


def _joined(chunks: Sequence[Estimates], detail: bool) -> Estimates:
    def join(name: str) -> Array:
        return np.concatenate([np.broadcast_to(getattr(c, name), len(c)) for c in chunks] or [np.zeros(0)])

    def joined(name: str, keys: Sequence[str]) -> dict[str, Array]:
        return {
            key: np.concatenate(
                [np.broadcast_to(getattr(c, name)[key], len(c)) for c in chunks] or [np.zeros(0)]
            )
            for key in keys
        }

    return Estimates(
        step_s=join("step_s"),
        busy_s=join("busy_s"),
        time_s=joined("time_s", TIMES) if detail else {},
        communication_s=joined("communication_s", COMMUNICATION) if detail else {},
        memory_bytes=joined("memory_bytes", MEMORY),
        total_bytes=join("total_bytes"),
        host_bytes=join("host_bytes"),
        feasible=join("feasible").astype(bool),
    )
