"""The times of the layers, the embedding and the head at every distinct shape, communication included."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import (
    Link,
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    reduce_scatter_s,
)
from trainwright.cost.operators import Machine
from trainwright.cost.overlap import smooth_max
from trainwright.estimate.blocks import (
    BlockCosts,
    block_costs,
    expert_slowdown,
    largest_costs,
    least_costs,
    no_costs,
    time_costs,
)
from trainwright.estimate.ranks import Ranks, build_ranks
from trainwright.estimate.shapes import Shapes
from trainwright.estimate.types import Job
from trainwright.model.graph import Segment, is_layer
from trainwright.plan.strategy import CP_KINDS, PRECISIONS

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the model (mean layer, first end, last end): its costs, its times with communication."""

    costs: BlockCosts
    largest: BlockCosts  # of the largest layer, where layers differ in their sizes
    forward_s: Array  # with exposed communication and the host's floor
    backward_s: Array
    without_weight_s: Array  # backward without the gradients of weights, which a schedule may put off
    again_s: Array  # what each recomputation but full repeats, with exposed communication
    tp_s: Array  # exposed communication, forward and backward together
    cp_s: Array
    ep_s: Array
    tp_all_s: Array  # the same, hidden or not
    cp_all_s: Array
    ep_all_s: Array


def model_parts(
    job: Job, links: Sequence[Link], shapes: Shapes, recomputes: Sequence[str]
) -> tuple[int, Part, Part, Part]:
    """The number of layers, and the mean layer, the first end and the last end of the model.

    Each has a row for each of the recomputations.
    """
    layers, total, first, last = 0, no_costs(shapes), no_costs(shapes), no_costs(shapes)
    bodies = []
    for segment in job.graph.segments:
        name = segment.block.name
        costs = _costs_by_precision(job, segment, shapes, recomputes)
        if name.endswith(("embedding", "encoder.end")):
            first = replace(first + costs, hidden_bytes=costs.hidden_bytes)
        elif name.endswith("head"):
            last = replace(last + costs, hidden_bytes=costs.hidden_bytes)
        else:
            layers += segment.count
            total = total + costs.scaled(segment.count)
            bodies.append(costs)
    # The embedding's sum is one forward, the head's one backward: half of what a layer's cost.
    mean, start, end = (
        _with_communication(job, links, shapes, costs, share)
        for costs, share in ((total.scaled(1.0 / layers), 1.0), (first, 0.5), (last, 0.5))
    )
    if any(segment.sizes for segment in job.graph.segments):
        mean = replace(mean, largest=largest_costs(bodies))
    return layers, mean, start, end


def least_layer_s(job: Job, links: Sequence[Link], shapes: Shapes, *, experts: bool) -> tuple[int, Array]:
    """The number of layers, and seconds of a mean layer's ops of experts with their communication, or of all
    other ops with theirs: forward and backward together are no shorter than both.

    Of communication, as much is hidden as the stack can hide.
    """
    layers, total = 0, no_costs(shapes)
    for segment in job.graph.segments:
        if is_layer(segment.block):
            layers += segment.count
            total = total + _time_costs(job, segment, shapes, experts=experts).scaled(segment.count)
    costs = total.scaled(1.0 / layers)
    stack, on, passes = job.stack, shapes.overlap, job.graph.passes
    ranks = build_ranks(
        links, {"tp": shapes.tp, "cp": shapes.cp, "dp": shapes.dp, "pp": shapes.pp}, shapes.order
    )
    ops = (
        costs.matmul_forward_s + costs.attention_forward_s + costs.streaming_forward_s + costs.matmul_data_s
        + costs.matmul_weight_s + costs.attention_backward_s + costs.streaming_backward_s
    )  # fmt: skip
    if experts:
        ep = _expert_parallel_s(job, links, ranks, shapes, costs)
        return layers, ops + 2.0 * ep * (1.0 - stack.ep_overlap * on)
    tp = _tensor_parallel_s(links, ranks, shapes, costs)
    cp = _context_parallel_s(job, links, ranks, shapes, costs)
    back = np.where(shapes.cp_kind == CP_KINDS.index("ulysses"), cp, 2.0 * cp)
    share = stack.cp_overlap * on * (shapes.cp_kind == CP_KINDS.index("ring"))
    summed = passes * tp * (1.0 - stack.tp_forward_overlap * on) + tp * (1.0 - stack.tp_overlap * on)
    return layers, ops + summed + (passes * cp + back) * (1.0 - share)


def _time_costs(job: Job, segment: Segment, shapes: Shapes, *, experts: bool) -> BlockCosts:
    """What bounds the time of a block, at the fastest of the precisions among the shapes."""
    tables = [
        time_costs(
            job.graph, segment, job.seq, shapes,
            Machine(device=job.cluster.device, efficiency=job.efficiency, stack=job.stack,
                    precision=PRECISIONS[code]),
            experts=experts,
        )
        for code in np.unique(shapes.precision)
    ]  # fmt: skip
    return tables[0] if len(tables) == 1 else least_costs(tables)


def _costs_by_precision(job: Job, segment: Segment, shapes: Shapes, recomputes: Sequence[str]) -> BlockCosts:
    """Block costs where each precision among the shapes is computed at its own rates."""
    codes = np.unique(shapes.precision)
    tables = [
        block_costs(
            job.graph, segment, job.seq, shapes,
            Machine(device=job.cluster.device, efficiency=job.efficiency, stack=job.stack,
                    precision=PRECISIONS[code]),
            recomputes=recomputes, traffic=bool(job.cluster.expanded),
        )
        for code in codes
    ]  # fmt: skip
    if len(tables) == 1:
        return tables[0]
    which = np.searchsorted(codes, shapes.precision)
    return BlockCosts(
        **{f.name: np.choose(which, [getattr(table, f.name) for table in tables]) for f in fields(BlockCosts)}
    )


def _with_communication(
    job: Job, links: Sequence[Link], shapes: Shapes, costs: BlockCosts, share_of_sums: float
) -> Part:
    stack, on = job.stack, shapes.overlap
    ranks = build_ranks(
        links, {"tp": shapes.tp, "cp": shapes.cp, "dp": shapes.dp, "pp": shapes.pp}, shapes.order
    )
    tp = share_of_sums * _tensor_parallel_s(links, ranks, shapes, costs)
    cp = _context_parallel_s(job, links, ranks, shapes, costs)
    # Keys and values are gathered again and their gradients scattered; heads are exchanged as forward.
    back = np.where(shapes.cp_kind == CP_KINDS.index("ulysses"), cp, 2.0 * cp)
    ep = _expert_parallel_s(job, links, ranks, shapes, costs)
    forward = costs.matmul_forward_s + costs.attention_forward_s + costs.streaming_forward_s
    backward = (
        costs.matmul_data_s + costs.matmul_weight_s + costs.attention_backward_s + costs.streaming_backward_s
    )
    passes = job.graph.passes  # forwards: with their communication, as often
    tp_forward = passes * tp * (1.0 - stack.tp_forward_overlap * on)
    # Backward, sums over ranks hide behind the weight gradients, which do not wait for them.
    behind_weights = np.minimum(tp * stack.tp_overlap * on, costs.matmul_weight_s)
    tp_backward = tp - behind_weights
    # A ring passes keys and values on behind the attention to those it holds; a gather must end first.
    share = stack.cp_overlap * on * (shapes.cp_kind == CP_KINDS.index("ring"))
    steps = _ring_steps_s(job, shapes, costs)
    cp_forward = passes * cp - np.minimum(passes * cp * share, costs.attention_forward_s) + passes * steps
    cp_alone = back - np.minimum(back * share, costs.attention_backward_s)
    # Weight gradients that wait for something to hide, and find no sum over ranks, are beside the ring.
    left = np.where((stack.tp_overlap * on > 0) & (shapes.tp == 1), costs.matmul_weight_s, 0.0)
    cp_backward = back - np.minimum(back * share, costs.attention_backward_s + left)
    ep_exposed = ep * (1.0 - stack.ep_overlap * on)
    host = (costs.kernels + 2.0 * costs.tp_reductions * (shapes.tp > 1)) * stack.op_s
    behind = smooth_max(backward + tp_backward + cp_backward + ep_exposed, host)
    rest = backward - costs.matmul_weight_s + tp + cp_alone + ep_exposed
    return Part(
        costs=costs,
        largest=costs,
        forward_s=smooth_max(forward + tp_forward + cp_forward + ep_exposed, passes * host),
        backward_s=behind,
        without_weight_s=np.minimum(smooth_max(rest, host), behind),
        again_s=_again_s(job, links, ranks, shapes, costs, (cp, share, steps), ep_exposed),
        tp_s=tp_forward + tp_backward,
        cp_s=cp_forward + cp_backward,
        ep_s=2.0 * ep_exposed,
        tp_all_s=(1.0 + passes) * tp,
        cp_all_s=back + passes * (cp + steps),
        ep_all_s=2.0 * ep,
    )


def _again_s(
    job: Job,
    links: Sequence[Link],
    ranks: Ranks,
    shapes: Shapes,
    costs: BlockCosts,
    ring: tuple[Array, Array, Array],
    ep_exposed: Array,
) -> Array:
    """What recomputations repeat of a part: compute, and communication that it waits for, or its launches.

    Norms are done again on parts of the sequence, and their results gathered for gradients of weights; what
    is gathered for a repeated matmul serves its weight gradient too. `ring` is one pass of keys and values,
    the share of it that hides behind attention, and the cost of its steps.
    """
    stack, on, where = job.stack, shapes.overlap, ranks.span(shapes.tp, np.ones(len(shapes)))
    gathered = np.where(shapes.sp > 0, all_gather_s(links, where, costs.hidden_bytes), 0.0)
    summed = np.where(
        shapes.sp > 0,
        reduce_scatter_s(links, where, costs.hidden_bytes),
        all_reduce_s(links, where, costs.hidden_bytes),
    )
    cp, share, steps = ring
    attends = cp - np.minimum(cp * share, costs.attention_forward_s / job.graph.passes) + steps
    device = (
        costs.again_s
        + costs.again_gathers * gathered * (1.0 - stack.tp_overlap * on)
        + costs.again_sums * summed * (1.0 - stack.tp_forward_overlap * on)
        + costs.again_routes * ep_exposed / 2.0
        + costs.again_attention * attends
    )
    return np.asarray(smooth_max(device, np.broadcast_to(costs.again_kernels * stack.op_s, device.shape)))


def _ring_steps_s(job: Job, shapes: Shapes, costs: BlockCosts) -> Array:
    """The cost of cutting attention into one kernel per member of the ring."""
    steps = np.where(shapes.cp_kind == CP_KINDS.index("ring"), shapes.cp - 1.0, 0.0)
    return np.where(costs.kv_bytes > 0, 2.0 * steps * job.efficiency.kernel_s, 0.0)


def _tensor_parallel_s(links: Sequence[Link], ranks: Ranks, shapes: Shapes, costs: BlockCosts) -> Array:
    """Sums of hidden states: all-reduces, or a reduce-scatter and an all-gather with sequence parallelism."""
    where = ranks.span(shapes.tp, np.ones(len(shapes)))
    plain = all_reduce_s(links, where, costs.hidden_bytes)
    gathered = all_gather_s(links, where, costs.hidden_bytes)
    scattered = reduce_scatter_s(links, where, costs.hidden_bytes)
    # Routed tokens are split over the ranks; without sequence parallelism they are gathered again.
    routed = np.where((costs.routed_bytes > 0) & (shapes.sp == 0), costs.expert_blocks * gathered, 0.0)
    return costs.tp_reductions * np.where(shapes.sp > 0, gathered + scattered, plain) + routed


def _context_parallel_s(
    job: Job, links: Sequence[Link], ranks: Ranks, shapes: Shapes, costs: BlockCosts
) -> Array:
    """Keys and values go round the ring (or are gathered) once forward, with their gradients backward.

    Ulysses exchanges queries, keys and values before attention and its results after it.
    """
    where = ranks.span(shapes.cp, shapes.tp)
    gathered = all_gather_s(links, where, costs.kv_bytes * shapes.cp)
    exchanged = shapes.cp_kind == CP_KINDS.index("ulysses")
    if exchanged.any():
        sizes = job.graph.sizes
        groups = sizes["heads"] / shapes.tp / np.maximum(sizes["kv_heads"] / shapes.tp, 1.0)
        half = all_to_all_s(links, where, 0.5 * costs.kv_bytes * groups)  # queries; results are as large
        keys = all_to_all_s(links, where, costs.kv_bytes)
        gathered = np.where(exchanged, 2.0 * half + keys, gathered)
    return np.where(costs.kv_bytes > 0, gathered, 0.0)


def _expert_parallel_s(
    job: Job, links: Sequence[Link], ranks: Ranks, shapes: Shapes, costs: BlockCosts
) -> Array:
    """Tokens to their experts and back: two all-to-alls, and gathers inside expert-tensor groups."""
    copies = job.graph.sizes.get("top_k", 1) if job.stack.ep_dedupe else 1
    where = ranks.span(shapes.ep, shapes.etp)
    both = 2.0 * all_to_all_s(links, where, costs.routed_bytes, copies)
    inner = ranks.span(shapes.etp, np.ones(len(shapes)))
    gathers = 2.0 * all_gather_s(links, inner, costs.routed_bytes * shapes.etp)
    return np.where(costs.routed_bytes > 0, (both + gathers) * expert_slowdown(job.stack, shapes), 0.0)
