"""Step time and memory of many strategies, put together from distinct shapes and layouts costed once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.overlap import shown_s
from trainwright.cost.tiers import build_expansion
from trainwright.estimate.breakdown import Pieces, breakdown, communication
from trainwright.estimate.gathers import LayerTimes, layer_times
from trainwright.estimate.in_flight import held_microbatches
from trainwright.estimate.layers import Part, model_parts
from trainwright.estimate.layouts import Layouts, build_layouts, layout_rows
from trainwright.estimate.memory import (
    MOVES_ACTIVATIONS,
    MOVES_OPTIMIZER,
    Activations,
    activation_table,
    fullest_row,
    host_bytes,
    kept_by_layers,
    memory_parts,
)
from trainwright.estimate.network import links as network_links
from trainwright.estimate.offload import Copies, build_copies
from trainwright.estimate.picked import at
from trainwright.estimate.pipeline import Builder, EndTimes, Pipeline
from trainwright.estimate.sends import Sends
from trainwright.estimate.shapes import Shapes, distinct_shapes
from trainwright.estimate.spill import Builder as SpillBuilder
from trainwright.estimate.spill import Spill, tier_keys
from trainwright.estimate.types import COMMUNICATION, MEMORY, TIMES, Estimates, Job
from trainwright.model.dlrm import check_layers
from trainwright.plan.strategy import RECOMPUTES, SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Key = TypeVar("Key")

CHUNK = 1 << 14  # strategies evaluated together: their arrays stay in cache


def estimate(job: Job, strategies: Strategies, *, detail: bool = True) -> Estimates:
    """Step time and memory of every strategy; with `detail`, also what the time is made of."""
    if not len(strategies):
        return join_estimates([], detail)
    return build_tables(job, strategies, distinct_recomputes(strategies)).estimate(strategies, detail=detail)


def distinct_recomputes(strategies: Strategies) -> Ints:
    """The recomputations of a batch, by number; no recomputation is always one of them."""
    return np.unique(np.append(strategies.recompute, RECOMPUTES.index("none")))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTables:
    """The tables of a job for some strategies, from which variants of these are estimated: strategies that
    recompute and offload something else.
    """

    model: "Model"
    shape: Ints
    layout: Ints
    global_batch: Array

    def take(self, rows: Ints | NDArray[np.bool_]) -> "StrategyTables":
        """The tables for some of the strategies."""
        return replace(
            self, shape=self.shape[rows], layout=self.layout[rows], global_batch=self.global_batch[rows]
        )

    def estimate(self, variants: Strategies, *, detail: bool) -> Estimates:
        """Step time and memory of one variant of each strategy."""
        chunks = [slice(at, at + CHUNK) for at in range(0, len(variants), CHUNK)]
        return join_estimates(
            [
                estimate_chunk(
                    self.model, variants.take(at), self.shape[at], self.layout[at], self.global_batch[at],
                    detail,
                )
                for at in chunks
            ],
            detail,
            tier_keys(self.model.job.cluster),
        )  # fmt: skip


def build_tables(job: Job, strategies: Strategies, recomputes: Ints) -> StrategyTables:
    """The tables of a job for some strategies and these recomputations, of which none is one."""
    job = crowded(job)
    shapes, shape = distinct_shapes(strategies)
    rows, layout = layout_rows(strategies)
    return StrategyTables(
        model=build_model(job, job, shapes, strategies.take(rows), shape[rows], recomputes),
        shape=shape,
        layout=layout,
        global_batch=np.broadcast_to(np.asarray(job.global_batch, dtype=float), len(strategies)),
    )


def build_model(
    job: Job, layouts_job: Job, shapes: Shapes, strategies: Strategies, shape: Ints, recomputes: Ints
) -> "Model":
    """The tables of a job: over shapes and recomputations, and over layouts, of each of which a strategy and
    its shape is given.

    The job is given twice, as it may hold figures of many clusters: one for each shape, or for each layout.
    """
    check_layers(job.graph)
    names = [RECOMPUTES[each] for each in recomputes]
    layers, layer, first, last = model_parts(job, network_links(job), shapes, names)
    layouts = build_layouts(
        layouts_job, network_links(layouts_job), layers, (layer, first, last), strategies, shape
    )
    table = activation_table(job, layer, first, last, shapes, recomputes)
    return Model(job=job, layers=layers, layer=layer, first=first, last=last, layouts=layouts, table=table)


def crowded(job: Job) -> Job:
    """The job where devices that share cores are taken to compute all the time, each so much slower."""
    times, efficiency, device = job.cluster.crowding, job.efficiency, job.cluster.device
    if times == 1.0:
        return job
    stack = replace(job.stack, step_s=job.stack.step_s * times, op_s=job.stack.op_s * times)
    if efficiency.kernels is not None:
        slowed = replace(efficiency, kernels=efficiency.kernels.slowed(times))
        return replace(job, stack=stack, efficiency=slowed)
    own, *others = device.memory
    slower = replace(
        device,
        peak_flops_per_s={dtype: rate / times for dtype, rate in device.peak_flops_per_s.items()},
        memory=(replace(own, bytes_per_s=own.bytes_per_s / times), *others),
    )
    return replace(job, stack=stack, cluster=replace(job.cluster, device=slower))


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The tables that one job's strategies are put together from."""

    job: Job
    layers: int
    layer: Part
    first: Part
    last: Part
    layouts: Layouts
    table: Activations


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a step is put together from: a layer, stages of layers, everything around them."""

    recompute_s: Array  # per layer
    overlap: Array  # share of gathers that may hide
    slack_s: Array  # what a layer could hide beyond its own gathers
    layer: LayerTimes
    received_s: Array  # of a microbatch, hidden or not
    pipeline: Pipeline
    pipeline_s: Array  # all microbatches
    reduce_s: Array
    update_s: Array


def estimate_chunk(
    model: Model, strategies: Strategies, shape: Ints, layout: Ints, global_batch: Array, detail: bool
) -> Estimates:
    """Estimates of strategies whose shapes and layouts are rows of the model's tables."""
    job, layouts = model.job, model.layouts
    microbatches = global_batch / (strategies.dp * strategies.micro_batch)
    work = _work(model, strategies, shape, layout, microbatches)
    waits = microbatches * layouts.wait_s[layout]
    step = work.pipeline_s + waits + work.reduce_s + work.update_s + job.stack.step_s
    row = fullest_row(model.table, strategies, shape, layouts.stages.row[layout])
    held = held_microbatches(strategies, microbatches, row)
    memory, kept = memory_parts(job, strategies, layouts, layout, model.table, shape, held)
    total = sum(memory.values(), start=np.zeros(1))
    host = host_bytes(strategies, layouts, layout, model.table, shape, held[0].in_flight)
    time, moved = (
        _details(model, strategies, shape, layout, (microbatches, step), work) if detail else ({}, {})
    )
    tiers, lying = np.zeros(len(strategies)), dict[tuple[str, str], Array]()
    if job.cluster.expanded:
        tiers, lying = _tiers(
            model, strategies, (shape, layout), microbatches, (memory, kept, total), work, detail
        )
        step = step + tiers
        time = time | {"tiers": tiers} if detail else time
    return Estimates(
        step_s=step,
        busy_s=microbatches * _compute_s(model, shape, work.recompute_s) / strategies.pp,
        time_s=time,
        communication_s=moved,
        memory_bytes=memory,
        total_bytes=total,
        host_bytes=host,
        tiers_s=tiers,
        tier_bytes=lying,
        feasible=(total <= job.cluster.capacity_bytes)
        & (host <= job.cluster.host_room_bytes)
        & ~layouts.stages.empty[layout],
    )


def _tiers(
    model: Model,
    strategies: Strategies,
    where: tuple[Ints, Ints],
    microbatches: Array,
    needed: tuple[dict[str, Array], Array, Array],
    work: _Work,
    detail: bool,
) -> tuple[Array, dict[tuple[str, str], Array]]:
    """What expanded memory adds to each step; with `detail`, also what lies there."""
    (shape, layout), (memory, kept, total) = where, needed
    added = np.zeros(len(strategies))
    rows = np.flatnonzero(total > model.job.cluster.device.memory[0].usable_bytes)
    lying = {key: np.zeros(len(strategies)) for key in tier_keys(model.job.cluster)} if detail else {}
    if not len(rows):
        return added, lying
    some, shape, layout, microbatches = (
        strategies.take(rows), shape[rows], layout[rows], microbatches[rows]
    )  # fmt: skip
    model = replace(model, job=at(model.job, rows))
    expansion = build_expansion(model.job.cluster, model.job.efficiency)
    assert expansion is not None
    spill = SpillBuilder(
        job=model.job, expansion=expansion,
        parts=(model.layer, model.first, model.last),
        layouts=model.layouts, table=model.table, strategies=some, shape=shape, layout=layout,
        recompute_s=work.recompute_s[rows],
    ).spill({name: each[rows] for name, each in memory.items()}, kept[rows])  # fmt: skip
    slower = _work(model, some, shape, layout, microbatches, spill)
    more_s = slower.pipeline_s + slower.reduce_s - work.pipeline_s[rows] - work.reduce_s[rows]
    added[rows] = np.maximum(more_s, 0.0) + spill.update_s
    for key, each in spill.lying(microbatches, model.layouts.stages.middle[layout]) if detail else ():
        lying[key][rows] = each
    return added, lying


def _work(
    model: Model,
    strategies: Strategies,
    shape: Ints,
    layout: Ints,
    microbatches: Array,
    spill: Spill | None = None,
) -> _Work:
    job, layouts, part = model.job, model.layouts, model.layer
    forward, backward = part.forward_s[shape], part.backward_s[shape]
    recompute = _recompute_s(model, strategies, shape, forward)
    again = recompute
    if spill is not None:
        forward, again = forward + spill.forward_s[0], recompute + spill.backward_s[0]
    overlap = strategies.overlap.astype(float) * job.stack.dp_overlap
    sends = layouts.sends.take(layout)
    send, far, received = _send_s(model, strategies, shape, sends)
    layer = layer_times(job, part, layouts, strategies, shape, layout, forward, again, send)
    slack = _slack_s(model, layout, overlap, forward, backward + again)
    turns = (strategies.schedule != SCHEDULES.index("gpipe")) | (microbatches == 1)
    pipeline = Builder(
        strategies=strategies,
        stages=layouts.stages.take(layout),
        layer=layer,
        ends=(
            _end(model, 1, strategies, shape, layouts.first_gather_s[layout], slack, spill),
            _end(model, 2, strategies, shape, layouts.last_gather_s[layout], slack, spill),
        ),
        copies=_copies(model, strategies, shape, layout, microbatches, layer, send),
        send_s=send,
        far_s=far,
        sends=sends,
        forwards=job.graph.passes,
        turns=turns.astype(float),
    ).pipeline(model.layers)
    return _Work(
        recompute_s=recompute,
        overlap=overlap,
        slack_s=slack,
        layer=layer,
        received_s=received,
        pipeline=pipeline,
        pipeline_s=pipeline.step_s(microbatches),
        reduce_s=_reduce_s(model, strategies, layout, layer, pipeline.middle.away_s, microbatches),
        update_s=layouts.update_s[layout]
        + MOVES_OPTIMIZER[strategies.offload] * layouts.update_moved_s[layout],
    )


def _details(
    model: Model,
    strategies: Strategies,
    shape: Ints,
    layout: Ints,
    runs: tuple[Array, Array],
    work: _Work,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What a step's time is made of, and its communication; `runs` are its microbatches and its time."""
    layouts, (microbatches, step) = model.layouts, runs
    busiest = work.pipeline.busiest()
    pieces = Pieces(
        microbatches=microbatches,
        layers=busiest.layers,
        is_first=busiest.is_first,
        is_last=busiest.is_last,
        recompute_s=work.recompute_s,
        gather_s=work.layer.gathers_s,
        gather_all_s=layouts.gather_s[layout],
        first_gather_s=layouts.first_gather_s[layout],
        last_gather_s=layouts.last_gather_s[layout],
        overlap=work.overlap,
        slack_s=work.slack_s,
        send_s=busiest.send_s,
        send_all_s=work.received_s,
        wait_s=layouts.wait_s[layout],
        offload_s=busiest.offload_s,
        bubble_s=work.pipeline_s - microbatches * busiest.seconds,
        reduce_s=work.reduce_s,
        reduce_all_s=layouts.reduce_s[layout] + layouts.renew_s[layout] + layouts.tied_s[layout],
        update_s=work.update_s,
    )
    arguments = (strategies, model.layer, model.first, model.last, shape, pieces)
    return breakdown(model.job, *arguments, step), communication(*arguments)


def _compute_s(model: Model, shape: Ints, recompute: Array) -> Array:
    """The work of a microbatch on all stages."""
    ends = _device_s(model.first, shape) + _device_s(model.last, shape)
    return model.layers * (_device_s(model.layer, shape) + recompute) + ends


def _device_s(part: Part, shape: Ints) -> Array:
    c = part.costs
    time = (
        c.matmul_forward_s + c.matmul_data_s + c.matmul_weight_s + c.attention_forward_s
        + c.attention_backward_s + c.streaming_forward_s + c.streaming_backward_s
    )  # fmt: skip
    return np.asarray(time[shape])


def _recompute_s(model: Model, strategies: Strategies, shape: Ints, forward: Array) -> Array:
    """Per layer, on average: everything again where layers recompute fully, or modules of them."""
    every = model.layers / strategies.pp
    share = np.where(
        strategies.recompute_layers > 0, np.minimum(strategies.recompute_layers / every, 1.0), 1.0
    )
    full = strategies.recompute == RECOMPUTES.index("full")
    forward = forward / model.job.graph.passes  # of recycled passes, only the last is needed again
    again = model.layer.again_s[model.table.rows[strategies.recompute], shape]
    return np.where(full, share * forward, again)


def _reduce_s(
    model: Model,
    strategies: Strategies,
    layout: Ints,
    layer: LayerTimes,
    away: tuple[Array, Array],
    microbatches: Array,
) -> Array:
    """What a step shows of its gradient reductions, which the last microbatch's backward hides, and of its
    gathers of new weights, which the next forward hides; the first layer's are beside nothing.

    A pass that waits for copies (`away`) hides as much more. Of several chunks, all but the first one's have
    beside them what a row does for the other microbatches of its last round in the chunks that are left.
    """
    layouts, stages = model.layouts, model.layouts.stages
    share = layouts.reduce_overlap[layout] * strategies.overlap
    edge, every = layouts.edge[layout], np.maximum(stages.middle[layout], 1.0)
    of_chunk = every / strategies.vpp
    inside = np.maximum(of_chunk - 1.0, 0.0)
    others = (strategies.vpp - 1.0) * np.minimum(strategies.pp, microbatches) * of_chunk
    i = model.job.stack.interference
    total = layouts.tied_s[layout]
    for whole, work, waits in (
        (layouts.reduce_s[layout], layer.inputs_s + layer.weights_s, away[1]),
        (layouts.renew_s[layout], layer.forward_s, away[0]),
    ):
        inner = whole * (1.0 - edge)
        hidden = inner * share
        near = inside * work + inside / every * waits  # of the first chunk's own pass
        far = near + others * (work + waits / every)
        # What is left over of the first chunk's after its own pass, or of all after everything.
        left = np.maximum(hidden * inside / np.maximum(every - 1.0, 1.0) - near, hidden - far)
        total = total + whole * edge + inner - hidden + np.maximum(i * hidden, left)
        # The last microbatch goes back through stages that are all slowed in turn, the first one forward too;
        # rows of several chunks go in step, most of the time slowed together.
        turns = (strategies.pp - 1) / strategies.vpp
        turns = np.where(strategies.vpp > 1, np.minimum(turns, 1.0), turns)
        total = total + turns * i * np.minimum(hidden, far)
    return total


def _slack_s(model: Model, layout: Ints, overlap: Array, forward: Array, backward: Array) -> Array:
    """What a layer's forward and backward could hide beyond the layer's own ZeRO-3 communication."""
    ahead, behind = model.layouts.gather_forward_s[layout], model.layouts.gather_backward_s[layout]
    behind = behind + model.layouts.scatter_s[layout]
    return np.maximum(forward - ahead * overlap, 0.0) + np.maximum(backward - behind * overlap, 0.0)


def _end(
    model: Model,
    which: int,
    strategies: Strategies,
    shape: Ints,
    gather: Array,
    slack: Array,
    spill: Spill | None,
) -> EndTimes:
    """The first (1) or last (2) end of the model; its own ZeRO-3 gathers hide beside the next layer too."""
    stack, overlap = model.job.stack, strategies.overlap.astype(float)
    part = (model.layer, model.first, model.last)[which]
    forward, backward = part.forward_s[shape], part.backward_s[shape]
    if spill is not None:
        forward, backward = forward + spill.forward_s[which], backward + spill.backward_s[which]
    shown = shown_s(forward + backward + slack, gather, overlap * stack.dp_overlap, stack.interference)
    put_off = part.backward_s[shape] - part.without_weight_s[shape]
    weights = np.where(strategies.schedule == SCHEDULES.index("zb"), put_off, 0.0)
    return forward, backward + shown - weights, weights


def _send_s(model: Model, strategies: Strategies, shape: Ints, sends: Sends) -> tuple[Array, Array, Array]:
    """One send to the next stage, exposed; what one to another site takes more; and all that a stage receives
    of a microbatch.

    A stage beside a border has one neighbour beyond it and one on its own side, and takes the mean of both.
    """
    stack = model.job.stack
    payload = model.layer.costs.hidden_bytes[shape] / strategies.tp
    more = sends.more_s(payload)
    one = np.where(strategies.pp > 1, sends.near_s(payload) + more / 2.0 + stack.send_s, 0.0)
    shown = np.asarray(1.0 - stack.pp_overlap * strategies.overlap)
    every = (1.0 + model.job.graph.passes) * strategies.vpp
    return np.asarray(one * shown), more * shown, np.asarray(every * one)


def _copies(
    model: Model,
    strategies: Strategies,
    shape: Ints,
    layout: Ints,
    microbatches: Array,
    layer: LayerTimes,
    send_s: Array,
) -> Copies | None:
    """Copies of activations to the host and back, of the mean layer; none if no strategy moves them."""
    moves = MOVES_ACTIVATIONS[strategies.offload]
    if not moves.any():
        return None
    layers, choice = model.layouts.stages.middle[layout], model.table.rows[strategies.recompute]
    kept = model.table.kept[choice, shape] + model.table.gathered[choice, shape]
    body = kept_by_layers(model.table, strategies, shape, layers, kept)
    rate = model.job.cluster.network.host_bytes_per_s * model.job.efficiency.host_link
    one = np.where(moves, body / np.maximum(layers, 1.0) / rate, 0.0)
    return build_copies(one, layer, strategies, microbatches, send_s, model.job.stack.interference)


def join_estimates(
    chunks: Sequence[Estimates], detail: bool, tiers: Sequence[tuple[str, str]] = ()
) -> Estimates:
    """The estimates of several batches, one after another."""

    def join(name: str) -> Array:
        return np.concatenate([np.broadcast_to(getattr(c, name), len(c)) for c in chunks] or [np.zeros(0)])

    def joined(name: str, keys: Sequence[Key]) -> dict[Key, Array]:
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
        tiers_s=join("tiers_s"),
        tier_bytes=joined("tier_bytes", tiers) if detail else {},
        feasible=join("feasible").astype(bool),
    )
