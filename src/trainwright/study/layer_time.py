"""The time of one transformer layer of any size, projected from the kernels and collectives of a profile."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import DTYPE_BYTES, Cluster
from trainwright.cost.kernels import Kernels, build_kernels
from trainwright.cost.measured import attention_seconds, product_seconds
from trainwright.cost.profile import ATTENTIONS, PRODUCTS, WORKS, Profile
from trainwright.cost.table import CollectiveTable, build_table
from trainwright.errors import BadInput, UnknownName
from trainwright.study.algorithm_edge import depth
from trainwright.study.switches import Switches

Array = NDArray[np.float64]
_STREAMS = frozenset(WORKS) - {*PRODUCTS, *ATTENTIONS}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Baseline:
    """What was measured, as models of time: of kernels projected, of collectives by size."""

    kernels: Kernels
    table: CollectiveTable
    element_bytes: float
    head: float  # columns of an attention head
    memory_bytes: float

    def collective_s(self, kind: str, members: Array | float, size_bytes: Array) -> Array:
        """The measured curve of the nearest group, for the bytes that each link of the group carries.

        So a larger group is taken to have links as fast, and hops that do not add up: a bound from below.
        """
        name = kind if any(each == kind for each, _ in self.table.curves) else "all_reduce"
        counts = [n for each, n in self.table.curves if each == name and n > 1]
        members = np.asarray(members, dtype=float)
        near = np.clip(members, min(counts), max(counts))
        return np.asarray(self.table.seconds(name, near, size_bytes) * wire(kind, members) / wire(name, near))


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Sizes:
    """Layers to be timed: arrays of one shape."""

    hidden: Array
    seq: Array
    batch: Array
    tp: Array


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LayerTime:
    """Seconds of a layer in a step, on one device; compute as on the profiled device."""

    compute_s: Array
    hiding_s: Array  # of that, the backward pass of its weights: what gradients are sent beside
    serialized_s: Array  # communication that the next operator waits for
    overlapped_s: Array  # data-parallel communication
    idle_share: float  # of a pipeline
    interference: float

    def serialized_share(self, faster: float = 1.0) -> Array:
        """Of the step without what data parallelism exposes, where compute is so many times as fast."""
        return self.serialized_s / self._step_s(faster)

    def overlapped_share(self, faster: float = 1.0) -> Array:
        """Data-parallel communication over the compute that hides it; above 1 the rest is exposed."""
        return np.asarray(self.overlapped_s * faster / np.maximum(self.hiding_s, 1e-300))

    def exposed_s(self, faster: float = 1.0) -> Array:
        """What data-parallel communication adds to the step: what sticks out, and what interference costs."""
        hiding_s = self.hiding_s / faster
        beside_s = np.minimum(self.overlapped_s, hiding_s)
        return np.asarray(self.overlapped_s - beside_s + self.interference * beside_s)

    def communication_share(self, faster: float = 1.0) -> Array:
        """Serialized and exposed communication, of the whole step."""
        exposed_s = self.exposed_s(faster)
        return np.asarray((self.serialized_s + exposed_s) / (self._step_s(faster) + exposed_s))

    def _step_s(self, faster: float) -> Array:
        return np.asarray((self.compute_s / faster + self.serialized_s) * (1.0 + self.idle_share))


def build_baseline(profile: Profile, cluster: Cluster) -> Baseline:
    """The models of time of a profile: `projected`, from the kernels of its baseline layer."""
    if profile.dtype not in DTYPE_BYTES:
        raise UnknownName(f"profile {cluster.name} dtype", profile.dtype, DTYPE_BYTES)
    table = build_table([each for each in profile.collectives if each.members > 1])
    if table is None or not any(kind == "all_reduce" for kind, _ in table.curves):
        rule = "has no all_reduce of two members or more"
        raise BadInput("profile", cluster.name, rule, "measure collectives between processes")
    region = {each.work for each in profile.kernels if each.region}
    for name, works in (
        ("product", PRODUCTS),
        ("attention", ATTENTIONS),
        ("norm or element-wise kernel", _STREAMS),
    ):
        if region.isdisjoint(works):
            raise BadInput(
                "profile", cluster.name, f"has no {name} of a baseline layer", "mark it with region = true"
            )
    return Baseline(
        kernels=build_kernels("projected", profile, cluster.device), table=table,
        element_bytes=DTYPE_BYTES[profile.dtype], head=profile.block.hidden / profile.block.heads,
        memory_bytes=cluster.device.memory[0].capacity_bytes,
    )  # fmt: skip


def wire(kind: str, members: Array) -> Array:
    """Times its bytes that a collective passes over each link of a ring."""
    if kind == "send":
        return np.ones_like(members)
    return np.asarray((2.0 if kind == "all_reduce" else 1.0) * (members - 1.0) / members)


def layer_time(baseline: Baseline, sizes: Sizes, switches: Switches) -> LayerTime:
    """Forward and backward (or forward only) of one layer, and what it exchanges."""
    forward_s, backward_s = _products(baseline, sizes, switches)
    beside = _others(baseline, sizes, switches)
    none = np.zeros_like(forward_s)
    return LayerTime(
        compute_s=forward_s + beside[0] + (0.0 if switches.inference else backward_s + beside[1]),
        hiding_s=none if switches.inference else backward_s,
        serialized_s=_serialized(baseline, sizes, switches),
        overlapped_s=none if switches.inference else _gradients(baseline, sizes, switches),
        idle_share=switches.idle_share, interference=switches.felt_interference,
    )  # fmt: skip


def _products(baseline: Baseline, sizes: Sizes, switches: Switches) -> tuple[Array, Array]:
    """Products with weights, forward and backward: QKV, output, and the two of an FFN of 4H."""
    hidden, shard = sizes.hidden, sizes.hidden / sizes.tp
    tokens = sizes.seq * sizes.batch
    routed = tokens * (switches.top_k if switches.experts else 1)
    shapes = (
        (tokens, 3.0 * shard, hidden), (tokens, hidden, shard),
        (routed, 4.0 * shard, hidden), (routed, hidden, 4.0 * shard),
    )  # fmt: skip
    forward_s, backward_s = np.zeros_like(tokens), np.zeros_like(tokens)
    one = np.ones(1)
    for m, n, k in shapes:
        forward_s += product_seconds(baseline.kernels, "forward", m, n, k, one)
        backward_s += product_seconds(baseline.kernels, "data", m, k, n, one)
        backward_s += product_seconds(baseline.kernels, "weight", k, n, m, one)
    return forward_s, backward_s


def _others(baseline: Baseline, sizes: Sizes, switches: Switches) -> tuple[Array, Array]:
    """Attention, two norms, two residual sums, and the activation of the FFN: forward and backward."""
    groups = sizes.batch * sizes.hidden / baseline.head / sizes.tp
    shape = (groups, sizes.seq, sizes.seq, np.full_like(groups, 2.0 * baseline.head))
    forward_s, backward_s = attention_seconds(baseline.kernels, False, shape, np.ones(1))
    whole = baseline.element_bytes * sizes.seq * sizes.batch * sizes.hidden
    kept = whole / sizes.tp if switches.sequence_parallel else whole
    inner = 4.0 * whole / sizes.tp * (switches.top_k if switches.experts else 1)
    for name, count, moved in (
        ("norm", 2.0, 2.0 * kept),
        ("add", 2.0, 3.0 * kept),
        ("gelu", 1.0, 2.0 * inner),
    ):
        forward_s = forward_s + count * baseline.kernels.seconds(f"{name}.forward", moved)
        backward_s = backward_s + count * baseline.kernels.seconds(f"{name}.backward", moved)
    return forward_s, backward_s


def _serialized(baseline: Baseline, sizes: Sizes, switches: Switches) -> Array:
    """Two all-reduces forward and two backward; all-to-alls of experts; sends between stages."""
    size_bytes = baseline.element_bytes * sizes.seq * sizes.batch * sizes.hidden
    ways = 1.0 if switches.inference else 2.0
    reduced = switches.in_network_reduction and not switches.sequence_parallel
    total_s = 2.0 * ways * _all_reduce_s(baseline, sizes.tp, size_bytes, reduced)
    if switches.experts > 1:
        routed = size_bytes * switches.top_k
        total_s = total_s + 2.0 * ways * baseline.collective_s("all_to_all", float(switches.experts), routed)
    if switches.stages > 1:
        sends = ways * switches.stages / depth(sizes.hidden)  # for each layer of a stage
        total_s = total_s + sends * baseline.collective_s("send", 2.0, size_bytes)
    return total_s


def _gradients(baseline: Baseline, sizes: Sizes, switches: Switches) -> Array:
    """The all-reduce of a layer's gradients over the replicas, or what FSDP sends instead."""
    size_bytes = baseline.element_bytes * 12.0 * sizes.hidden**2 / sizes.tp
    reduced = switches.in_network_reduction and not switches.fsdp
    replicas = np.full_like(sizes.tp, float(switches.replicas))
    # A reduce-scatter and two all-gathers, each half of an all-reduce.
    return (1.5 if switches.fsdp else 1.0) * _all_reduce_s(baseline, replicas, size_bytes, reduced)


def _all_reduce_s(baseline: Baseline, members: Array, size_bytes: Array, reduced: bool) -> Array:
    # In the network each byte is sent once, so the curve is read at the fewer bytes.
    sent = size_bytes / np.maximum(wire("all_reduce", members), 1.0) if reduced else size_bytes
    return baseline.collective_s("all_reduce", members, sent)
