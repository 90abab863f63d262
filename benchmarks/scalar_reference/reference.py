"""Step time and memory of one strategy.

Shares no code with the closed form but facts: the graph's operators, the device, the links' achieved rates
and latencies (`cost.network`), the constants of stack and device. Rows and chunks of a pipeline are written
out. It knows devices with one memory, at one site, whose times are not measured.
"""

from dataclasses import dataclass

from scalar_reference.blocks import model_work
from scalar_reference.collectives import Placement
from scalar_reference.layer_passes import end_pass, layer_pass, recompute_s
from scalar_reference.memory import MemoryUse, host_bytes, kept_for_backward_bytes, peak_memory
from scalar_reference.offload import activation_copies
from scalar_reference.parts import part_time
from scalar_reference.pipeline import Pipeline
from scalar_reference.rows import build_rows
from scalar_reference.state import DataParallel, most_parameters, row_parameters, update_s
from trainwright.cost.network import FAR_S, level_links
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceEstimate:
    """What one strategy takes."""

    step_s: float
    busy_s: float  # that the mean device computes
    memory: MemoryUse
    host_bytes: float


def check_job(job: Job) -> None:
    """Raise if the reference does not know a job."""
    links = level_links(job.cluster, job.efficiency, job.stack)
    unknown = {
        "expanded memory": bool(job.cluster.expanded),
        "devices that share cores": job.cluster.crowding > 1.0,
        "measured kernels": job.efficiency.kernels is not None or job.efficiency.table is not None,
        "an on-chip buffer": job.efficiency.buffered,
        "stated algorithms of collectives": any(link.algorithms for link in links),
        "several sites": any(link.latency_s - link.extra_s >= FAR_S for link in links),
    }
    for what, present in unknown.items():
        if present:
            raise ValueError(f"scalar reference: {job.cluster.name} has {what}, which it does not know")


def reference_estimate(job: Job, strategy: Strategy) -> ReferenceEstimate:
    """Step time and memory of one strategy."""
    s, stack = strategy, job.stack
    placement = Placement(links=level_links(job.cluster, job.efficiency, stack), strategy=s)
    microbatches = int(job.global_batch) / (s.dp * s.micro_batch)
    work = model_work(job, s)
    rows = build_rows(job, s, work)
    layers_per_row = max(row.layers for row in rows)
    layer, first, last = (
        part_time(job, s, placement, each, is_end=is_end)
        for each, is_end in ((work.layer, False), (work.first, True), (work.last, True))
    )
    parallel = DataParallel(job=job, strategy=s, placement=placement)
    gathers = parallel.gathers(work.layer, is_end=False)
    ends_gathers = [parallel.gathers(each, is_end=True) for each in (work.first, work.last)]

    send_s = exposed_send_s(job, s, placement, work.layer.hidden_bytes)
    recomputed_s = recompute_s(job, s, layer, work.layers)
    passed = layer_pass(job, s, layer, recomputed_s, gathers, layers_per_row / s.vpp, send_s)
    kept = kept_for_backward_bytes(job, s, work, layers_per_row, with_gathered=True)
    pipeline = Pipeline(
        job=job,
        strategy=s,
        rows=rows,
        layer=passed,
        first=end_pass(job, s, first, ends_gathers[0], layer, recomputed_s, gathers),
        last=end_pass(job, s, last, ends_gathers[1], layer, recomputed_s, gathers),
        copies=activation_copies(job, s, passed, kept / max(layers_per_row, 1), microbatches, send_s),
        send_s=send_s,
        microbatches=microbatches,
    )
    most = most_parameters(job, work, rows)
    own = row_parameters(job, work, rows[0]).both
    edge = min((work.first.dense_parameters + work.layer.parameters) / max(own, 1.0), 1.0)
    offload_s = pipeline.fullest().offload_s
    reduced_s = exposed_once_per_step_s(
        job, s, parallel.reduce_s(most, layers_per_row), edge, layers_per_row, microbatches,
        passed.dgrad_s + passed.wgrad_s, offload_s[1],
    )  # fmt: skip
    renewed_s = exposed_once_per_step_s(
        job, s, parallel.renew_s(most, layers_per_row), edge, layers_per_row, microbatches,
        passed.forward_s, offload_s[0],
    )  # fmt: skip
    step_s = pipeline.total_s() + microbatches * lost_in_pipeline_s(job, s, layers_per_row)
    step_s += reduced_s + renewed_s + update_s(job, s, most) + stack.step_s
    compute_s = (
        work.layers * (work.layer.compute_s + recomputed_s) + work.first.compute_s + work.last.compute_s
    )
    return ReferenceEstimate(
        step_s=step_s,
        busy_s=microbatches * compute_s / s.pp,
        memory=peak_memory(job, s, work, rows, microbatches),
        host_bytes=host_bytes(job, s, work, rows, microbatches),
    )


def exposed_send_s(job: Job, s: Strategy, placement: Placement, hidden_bytes: float) -> float:
    """One send to the next stage: each tensor-parallel rank sends its part."""
    if s.pp == 1:
        return 0.0
    one_s = placement.send_s(hidden_bytes / s.tp) + job.stack.send_s
    return one_s * (1.0 - job.stack.pp_overlap * s.overlap)


def lost_in_pipeline_s(job: Job, s: Strategy, layers: float) -> float:
    """What some stacks lose per microbatch of a pipeline, with tensor parallelism and on many nodes."""
    if s.pp == 1:
        return 0.0
    nodes = s.devices / job.cluster.node_size
    contention_s = job.stack.pipeline_tp_s * layers * s.tp if s.tp > 1 else 0.0
    return contention_s + job.stack.pipeline_stall_s * min(nodes / 64.0, 1.0) ** 8


def exposed_once_per_step_s(
    job: Job,
    s: Strategy,
    whole_s: float,
    edge: float,
    layers: float,
    microbatches: float,
    layer_s: float,
    offload_s: float,
) -> float:
    """What a step shows of the reduction of gradients, which overlaps the last backward, or of the gather of
    new weights, which overlaps the first forward. One layer of that pass takes `layer_s`; the row's layers
    wait `offload_s` for copies.

    The `edge`, the first layer and the embedding, overlaps nothing. The rest of the first chunk overlaps the
    chunk's own pass; all chunks together also what the row does for the other microbatches of the round.
    """
    stack = job.stack
    overlap = stack.zero_overlap if s.zero in (1, 2) else stack.dp_overlap
    layers = max(layers, 1.0)
    in_chunk = layers / s.vpp
    hideable_s = whole_s * (1.0 - edge)
    overlapped_s = hideable_s * overlap * s.overlap
    with_copies_s = layer_s + offload_s / layers
    rest = max(in_chunk - 1.0, 0.0)  # of the first chunk's layers
    own_s = rest * with_copies_s
    others_s = (s.vpp - 1) * min(s.pp, microbatches) * in_chunk * with_copies_s
    first_chunk_s = overlapped_s * rest / max(layers - 1.0, 1.0)
    left_s = max(first_chunk_s - own_s, overlapped_s - own_s - others_s)
    total_s = whole_s - overlapped_s + max(stack.interference * overlapped_s, left_s)
    # Rows that are slowed hold up each other: one by one, or in step if they have chunks.
    slowed_rows = (s.pp - 1) / s.vpp if s.vpp == 1 else min((s.pp - 1) / s.vpp, 1.0)
    return total_s + slowed_rows * stack.interference * min(overlapped_s, own_s + others_s)
