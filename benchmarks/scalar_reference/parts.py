"""A layer or an end of the model with the communication of tensor, context and expert parallelism."""

from dataclasses import dataclass

from scalar_reference.blocks import BlockWork, expert_slowdown
from scalar_reference.collectives import Placement
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """Seconds per microbatch, ZeRO's communication not included."""

    forward_s: float
    backward_s: float
    wgrad_s: float  # of the backward: what a zero-bubble schedule defers
    repeated_s: float  # what recomputed modules add to it


def part_time(
    job: Job, strategy: Strategy, placement: Placement, work: BlockWork, *, is_end: bool
) -> PartTime:
    """The mean layer, or an end of the model: its sums go one way only, the embedding's forward, the head's
    backward.
    """
    stack, s, passes = job.stack, strategy, job.graph.passes
    on = float(s.overlap)
    tp_s = tensor_parallel_s(s, placement, work) * (0.5 if is_end else 1.0)
    cp_s = context_parallel_s(job, s, placement, work)
    # Keys and values are gathered again and their gradients scattered; heads are exchanged as forward.
    cp_back_s = cp_s if s.cp_kind == "ulysses" else 2.0 * cp_s
    copies = job.graph.sizes.get("top_k", 1) if stack.ep_dedupe else 1
    ep_s = expert_parallel_s(s, placement, work, copies) * (1.0 - stack.ep_overlap * on)
    ep_s *= expert_slowdown(job, s)
    host_s = stack.op_s * (work.kernels + (2.0 * work.tp_sums if s.tp > 1 else 0.0))
    ring = s.cp_kind == "ring"
    hidden = stack.cp_overlap * on if ring else 0.0  # share of a ring that overlaps attention
    ring_kernels_s = 2.0 * (s.cp - 1) * job.efficiency.kernel_s if ring and work.kv_bytes else 0.0

    tp_forward_s = passes * tp_s * (1.0 - stack.tp_forward_overlap * on)
    cp_forward_s = passes * cp_s - min(passes * cp_s * hidden, work.attention_forward_s)
    cp_forward_s += passes * ring_kernels_s
    forward_s = smooth_max(work.forward_s + tp_forward_s + cp_forward_s + ep_s, passes * host_s)

    # Sums over tensor-parallel ranks hide behind weight gradients; without any, the ring does.
    tp_backward_s = tp_s - min(tp_s * stack.tp_overlap * on, work.matmul_wgrad_s)
    free_s = work.matmul_wgrad_s if s.tp == 1 and stack.tp_overlap * on > 0 else 0.0
    cp_backward_s = cp_back_s - min(cp_back_s * hidden, work.attention_backward_s + free_s)
    backward_s = smooth_max(work.backward_s + tp_backward_s + cp_backward_s + ep_s, host_s)

    # With deferred weight gradients, nothing is left to hide the sums.
    cp_alone_s = cp_back_s - min(cp_back_s * hidden, work.attention_backward_s)
    dgrad_s = smooth_max(work.backward_s - work.matmul_wgrad_s + tp_s + cp_alone_s + ep_s, host_s)

    attention_s = cp_s - min(cp_s * hidden, work.attention_forward_s / passes) + ring_kernels_s
    repeated_s = work.repeated_s + work.repeated_attention * attention_s + work.repeated_routes * ep_s / 2.0
    repeated_s += repeated_tensor_parallel_s(job, s, placement, work)
    return PartTime(
        forward_s=forward_s,
        backward_s=backward_s,
        wgrad_s=max(backward_s - dgrad_s, 0.0),
        repeated_s=smooth_max(repeated_s, work.repeated_kernels * stack.op_s),
    )


def tensor_parallel_s(s: Strategy, placement: Placement, work: BlockWork) -> float:
    """Sums of hidden states in a forward; a backward has as many."""
    group, size = placement.group(s.tp, 1), work.hidden_bytes
    if s.sp:
        return work.tp_sums * (group.all_gather_s(size) + group.reduce_scatter_s(size))
    # Tokens leave for experts from one rank each, and are gathered when they are back.
    routed_s = work.expert_blocks * group.all_gather_s(size) if work.routed_bytes else 0.0
    return work.tp_sums * group.all_reduce_s(size) + routed_s


def repeated_tensor_parallel_s(job: Job, s: Strategy, placement: Placement, work: BlockWork) -> float:
    """What recomputed modules gather again, exposed as in a backward, and sum again, as in a forward."""
    group, size, on = placement.group(s.tp, 1), work.hidden_bytes, float(s.overlap)
    gather_s = group.all_gather_s(size) if s.sp else 0.0
    sum_s = group.reduce_scatter_s(size) if s.sp else group.all_reduce_s(size)
    gathers_s = work.repeated_gathers * gather_s * (1.0 - job.stack.tp_overlap * on)
    return gathers_s + work.repeated_sums * sum_s * (1.0 - job.stack.tp_forward_overlap * on)


def context_parallel_s(job: Job, s: Strategy, placement: Placement, work: BlockWork) -> float:
    """In a forward: keys and values of all ranks; or, with Ulysses, exchanges of queries, of keys and values,
    and of results, which are as large as the queries.
    """
    if not work.kv_bytes:
        return 0.0
    group = placement.group(s.cp, s.tp)
    if s.cp_kind != "ulysses":
        return group.all_gather_s(work.kv_bytes * s.cp)
    sizes = job.graph.sizes
    queries_per_key = sizes["heads"] / s.tp / max(sizes["kv_heads"] / s.tp, 1.0)
    query_bytes = work.kv_bytes / 2.0 * queries_per_key
    return 2.0 * group.all_to_all_s(query_bytes) + group.all_to_all_s(work.kv_bytes)


def expert_parallel_s(s: Strategy, placement: Placement, work: BlockWork, copies: int) -> float:
    """Tokens to experts and back in a forward; a backward has as much."""
    if not work.routed_bytes:
        return 0.0
    exchanged_s = placement.group(s.ep, s.etp).all_to_all_s(work.routed_bytes, copies)
    gathered_s = placement.group(s.etp, 1).all_gather_s(work.routed_bytes * s.etp)
    return 2.0 * (exchanged_s + gathered_s)


def smooth_max(a: float, b: float) -> float:
    """The larger of two times, a little more where they are close."""
    high, low = max(a, b), min(a, b)
    return high * (1.0 + (low / high) ** 8) ** 0.125 if high > 0 else 0.0


def exposed_s(compute_s: float, communication_s: float, share: float, interference: float) -> float:
    """What communication adds to compute if `share` of it overlaps: together w + i·c, at least c."""
    overlapped_s = share * communication_s
    return communication_s - overlapped_s + max(interference * overlapped_s, overlapped_s - compute_s)
