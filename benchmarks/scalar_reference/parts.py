"""A layer or an end of the model with the communication of tensor, context and expert parallelism."""

from dataclasses import dataclass

from scalar_reference.blocks import BlockWork
from scalar_reference.collectives import Placement
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTime:
    """Seconds per microbatch, ZeRO's communication not included."""

    forward_s: float
    backward_s: float
    wgrad_s: float  # of the backward: what a zero-bubble schedule defers
    selective_s: float  # what selective recomputation adds


def part_time(
    job: Job, strategy: Strategy, placement: Placement, work: BlockWork, *, is_end: bool
) -> PartTime:
    """The mean layer, or an end of the model: its sums go one way only, the embedding's forward, the head's
    backward.
    """
    stack, s, passes = job.stack, strategy, job.graph.passes
    on = float(s.overlap)
    tp_s = tensor_parallel_s(s, placement, work) * (0.5 if is_end else 1.0)
    cp_s = context_parallel_s(s, placement, work)
    copies = job.graph.sizes.get("top_k", 1) if stack.ep_dedupe else 1
    ep_s = expert_parallel_s(s, placement, work, copies) * (1.0 - stack.ep_overlap * on)
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
    cp_backward_s = 2.0 * cp_s - min(2.0 * cp_s * hidden, work.attention_backward_s + free_s)
    backward_s = smooth_max(work.backward_s + tp_backward_s + cp_backward_s + ep_s, host_s)

    # With deferred weight gradients, nothing is left to hide the sums.
    cp_alone_s = 2.0 * cp_s - min(2.0 * cp_s * hidden, work.attention_backward_s)
    dgrad_s = smooth_max(work.backward_s - work.matmul_wgrad_s + tp_s + cp_alone_s + ep_s, host_s)

    regathered = s.sp and stack.attention != "unfused"
    regather_s = 0.5 * tp_s * (1.0 - stack.tp_overlap * on) if regathered else 0.0
    return PartTime(
        forward_s=forward_s,
        backward_s=backward_s,
        wgrad_s=max(backward_s - dgrad_s, 0.0),
        selective_s=work.selective_s + regather_s,
    )


def tensor_parallel_s(s: Strategy, placement: Placement, work: BlockWork) -> float:
    """Sums of hidden states in a forward; a backward has as many."""
    group, size = placement.group(s.tp, 1), work.hidden_bytes
    if s.sp:
        return work.tp_sums * (group.all_gather_s(size) + group.reduce_scatter_s(size))
    # Tokens leave for experts from one rank each, and are gathered when they are back.
    routed_s = work.expert_blocks * group.all_gather_s(size) if work.routed_bytes else 0.0
    return work.tp_sums * group.all_reduce_s(size) + routed_s


def context_parallel_s(s: Strategy, placement: Placement, work: BlockWork) -> float:
    """Keys and values of all ranks in a forward; a backward has twice as much."""
    return placement.group(s.cp, s.tp).all_gather_s(work.kv_bytes * s.cp) if work.kv_bytes else 0.0


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
