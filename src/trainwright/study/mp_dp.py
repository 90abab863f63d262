"""The method of COMET (arXiv 2211.16648) in our terms: model- and data-parallel degrees as strategies.

Its MP is tensor parallelism, over as many pods as it takes; ZeRO shards state over DP; devices are their
datasheets (the cost source `roofline`); whole layers are done again backward, so that a layer keeps its
input; nothing is split along the sequence. Of the model its layers count, and of those their matrices:
12 L H² parameters. Gradients are 2 bytes, the optimizer's state 12. Times and memory are `estimate`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import EVEN, Cluster, Device, MemoryTier
from trainwright.cost.constants import Stack
from trainwright.cost.source import ROOFLINE
from trainwright.estimate.layers import Part, model_parts
from trainwright.estimate.network import links
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Estimates, Job
from trainwright.model.graph import Graph, Op, is_layer
from trainwright.plan.strategy import Strategies, Strategy, join_strategies, stack_strategies
from trainwright.stack.capability import Capability
from trainwright.stack.state import StateLayout

Array = NDArray[np.float64]
SEQ = 2048
ZERO = 2
# Software without overheads: gradients hide behind the backward, sums inside layers do not.
STACK = Stack(
    name="comet", attention="unfused", op_s=0.0, step_s=0.0, send_s=0.0, tp_overlap=0.0, dp_overlap=1.0,
    zero_overlap=1.0, interference=0.0, gradient_bytes=2.0, reduce_bytes=2.0, optimizer_bytes=12.0,
    context_bytes=0.0, fragmentation=0.0, logits_bytes=0.0,
    capability=Capability(state=StateLayout(unit_gradient_bytes=0.0)),  # as the paper counts ZeRO-2
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MpPoint:
    """One degree of model parallelism: its time, by what it goes to, and its memory."""

    mp: int
    dp: int
    strategy: str
    fits: bool
    step_s: float
    fp_compute_s: float  # forward
    ig_compute_s: float  # gradients of inputs
    wg_compute_s: float  # gradients of weights
    again_s: float  # the forward done again, its communication included
    fp_exposed_s: float
    ig_exposed_s: float
    wg_exposed_s: float
    optimizer_s: float
    tiers_s: float  # what expanded memory adds
    state_bytes: float
    activation_bytes: float

    @property
    def total_bytes(self) -> float:
        """Of the fullest device."""
        return self.state_bytes + self.activation_bytes


def layers_graph(graph: Graph) -> Graph:
    """The layers of a model, of whose weights only matrices are counted."""
    segments = tuple(
        replace(segment, block=replace(segment.block, ops=tuple(map(_matrices, segment.block.ops))))
        for segment in graph.segments
        if is_layer(segment.block)
    )
    return replace(graph, segments=segments, tied=frozenset())


def _matrices(op: Op) -> Op:
    kept = op.kind == "matmul"
    return replace(op, weights=tuple(w for w in op.weights if kept and set(op.contracted) <= set(w.dims)))


def build_job(graph: Graph, cluster: Cluster, global_batch: int) -> Job:
    """The question that the method asks of a cluster."""
    return Job(
        graph=graph, cluster=cluster, stack=STACK, efficiency=ROOFLINE, seq=SEQ, global_batch=global_batch
    )


def with_memory(cluster: Cluster, capacity_bytes: float) -> Cluster:
    """The cluster with so much usable memory of the devices' own, and no other."""
    own = replace(cluster.device.memory[0], capacity_bytes=capacity_bytes, usable_fraction=None)
    return with_tiers(cluster, (own,))


def with_expansion(cluster: Cluster, capacity_bytes: float, bytes_per_s: float) -> Cluster:
    """The cluster whose devices reach a second tier in place; every tensor lies in both, in proportion."""
    tier = MemoryTier(
        name="expanded", capacity_bytes=capacity_bytes, bytes_per_s=bytes_per_s, access="direct"
    )
    return replace(with_tiers(cluster, (cluster.device.memory[0], tier)), spill=EVEN)


def with_tiers(cluster: Cluster, memory: tuple[MemoryTier, ...]) -> Cluster:
    """The cluster with these memory tiers."""
    return replace(cluster, device=replace(cluster.device, memory=memory))


def precision(device: Device) -> str:
    """The 16-bit dtype of a device."""
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def degrees(number: int) -> tuple[int, ...]:
    """Powers of two that divide a number."""
    return tuple(1 << power for power in range(number.bit_length()) if number % (1 << power) == 0)


def mp_strategies(job: Job, mp: int, zero: int = ZERO) -> Strategies:
    """One degree, with every micro batch that divides the replicas' share of the batch."""
    dp = job.cluster.count // mp
    local = int(job.global_batch) // dp
    dtype = precision(job.cluster.device)
    sizes = degrees(local) if local else (1,)
    plain = Strategy(dp=dp, tp=mp, zero=zero, recompute="full", precision=dtype)
    return stack_strategies([replace(plain, micro_batch=size) for size in sizes])


def sweep_mp(job: Job) -> tuple[MpPoint, ...]:
    """Every degree with its best micro batch: of those that fit, else of the one that needs least."""
    strategies = _every_degree(job)
    result = estimate(job, strategies)
    chosen = [_best_of(strategies.tp == mp, result) for mp in dict.fromkeys(strategies.tp.tolist())]
    shapes, shape = distinct_shapes(strategies.take(np.array(chosen)))
    layers, layer, _, _ = model_parts(job, links(job), shapes, ("full",))
    return tuple(
        _split(job, strategies, result, index, (layers, layer, int(own)))
        for index, own in zip(chosen, shape, strict=True)
    )


def _every_degree(job: Job) -> Strategies:
    count, batch = job.cluster.count, int(job.global_batch)
    dealt = [mp for mp in degrees(count) if batch % (count // mp) == 0]
    return join_strategies([mp_strategies(job, mp) for mp in dealt])


def _best_of(mine: NDArray[np.bool_], result: Estimates) -> int:
    fitting = mine & result.feasible
    if fitting.any():
        return int(np.argmin(np.where(fitting, result.step_s, np.inf)))
    return int(np.argmin(np.where(mine, result.total_bytes, np.inf)))


def best_mp(points: Sequence[MpPoint]) -> MpPoint | None:
    """The fastest degree that fits."""
    return min((each for each in points if each.fits), key=lambda each: each.step_s, default=None)


def best_strategy(job: Job) -> tuple[float, Strategy | None]:
    """The fastest of all degrees and micro batches that fits, and its time; infinite if none does."""
    strategies = _every_degree(job)
    result = estimate(job, strategies, detail=False)
    if not result.feasible.any():
        return inf, None
    index = int(np.argmin(np.where(result.feasible, result.step_s, np.inf)))
    return float(result.step_s[index]), strategies[index]


def best_time(job: Job) -> tuple[float, int]:
    """The time of the fastest degree that fits, and the degree; infinite and 0 if none does."""
    step_s, strategy = best_strategy(job)
    return step_s, strategy.tp if strategy else 0


def footprint_rows(graph: Graph, cluster: Cluster, listed: Sequence[int]) -> list[dict[str, object]]:
    """State of each degree under each stage of ZeRO, in GB of a device.

    Of ZeRO-3, what devices own; the two layers that are gathered at any time come on top.
    """
    rows: list[dict[str, object]] = []
    # Heads as narrow as can be, so that every degree divides them: the matrices are the same.
    narrow = {"heads": graph.sizes["hidden"], "kv_heads": graph.sizes["hidden"], "head_dim": 1, "v_dim": 1}
    for mp in listed:
        dp = cluster.count // mp
        job = build_job(replace(graph, sizes={**graph.sizes, **narrow}), cluster, dp)
        parts = [estimate(job, mp_strategies(job, mp, zero)).memory_bytes for zero in range(4)]
        state = [float(sum(p[name][0] for name in ("weights", "gradients", "optimizer"))) for p in parts]
        gathered = float(parts[3]["weights"][0] - parts[3]["gradients"][0])  # both are 2 bytes, alike sharded
        state[3] -= gathered
        sizes = {f"zero{zero}_gb": each / 1e9 for zero, each in enumerate(state)}
        rows.append({"mp": mp, "dp": dp, **sizes, "zero3_gathered_gb": gathered / 1e9})
    return rows


def _split(
    job: Job, strategies: Strategies, result: Estimates, index: int, shape: tuple[int, Part, int]
) -> MpPoint:
    """One estimate by COMET's parts: compute and exposed communication of FP, IG and WG."""
    one, (layers, layer, own) = strategies[index], shape
    runs = int(job.global_batch) / (one.dp * one.micro_batch) * layers
    forward, inputs, weights = (runs * float(each[own]) for each in _compute_s(layer))
    time = {name: float(values[index]) for name, values in result.time_s.items()}
    memory = {name: float(values[index]) for name, values in result.memory_bytes.items()}
    return MpPoint(
        mp=one.tp, dp=one.dp, strategy=str(one), fits=bool(result.feasible[index]),
        step_s=float(result.step_s[index]), fp_compute_s=forward, ig_compute_s=inputs, wg_compute_s=weights,
        again_s=time["recompute"], fp_exposed_s=time["tp"] / 2.0, ig_exposed_s=time["tp"] / 2.0,
        wg_exposed_s=time["dp"], optimizer_s=time["optimizer"], tiers_s=time.get("tiers", 0.0),
        state_bytes=sum(memory[name] for name in ("weights", "gradients", "optimizer")),
        activation_bytes=memory["activations"],
    )  # fmt: skip


def _compute_s(layer: Part) -> tuple[Array, Array, Array]:
    """A layer's forward, gradients of inputs, gradients of weights, per microbatch, by shape."""
    c = layer.costs
    return (
        c.matmul_forward_s + c.attention_forward_s + c.streaming_forward_s,
        c.matmul_data_s + c.attention_backward_s + c.streaming_backward_s,
        c.matmul_weight_s,
    )
