"""Step time and memory of recommenders: the closed form of table-parallel plans, over arrays of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, all_to_all_s, reduce_scatter_s, span
from trainwright.cost.constants import Stack
from trainwright.cost.operators import (
    ROW_STATE_BYTES,
    Machine,
    bytes_of,
    op_time,
    op_traffic_bytes,
    table_traffic_bytes,
)
from trainwright.cost.overlap import smooth_max
from trainwright.cost.state import StateWidths, state_widths, update_s
from trainwright.cost.tiers import TABLES as TABLES_CLASS
from trainwright.cost.tiers import added_s, build_expansion, tier_shares
from trainwright.estimate.network import links as network_links
from trainwright.estimate.types import COMMUNICATION, MEMORY, TIMES, Estimates, Job
from trainwright.model.dlrm import TABLE_ROWS, TABLES, WIDTH
from trainwright.model.graph import Segment, segment_parameters, segment_sizes
from trainwright.model.totals import saved_tensors
from trainwright.plan.sharding import Shardings

Array = NDArray[np.float64]
Sizes = Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Seconds of one block on one device."""

    matmul_s: tuple[Array, Array]  # forward and backward
    streaming_s: tuple[Array, Array]
    kernels: float
    parameters: float  # of an MLP's layer: whole on every device

    def device_s(self, way: int) -> Array:
        """Of one direction."""
        return self.matmul_s[way] + self.streaming_s[way]


def estimate_tables(job: Job, shardings: Shardings) -> Estimates:
    """Step time and memory of every sharding, of `job.global_batch` samples a step over all its devices.

    One microbatch: tables are looked up for all samples, the MLPs' layers run on each device's own. What is
    looked up is exchanged in the open, as far as the stack does not hide it; gradients of the MLPs are summed
    beside the backward of the layers before them.
    """
    batch = np.broadcast_to(np.asarray(job.global_batch, dtype=float), len(shardings))
    machine = Machine(
        device=job.cluster.device, efficiency=job.efficiency, stack=job.stack, precision=shardings.precision
    )
    links = network_links(job)
    local = _sizes(job, shardings, batch)
    blocks = [_block(job, segment, sizes, machine) for segment, sizes in local]
    exchange = _exchanges_s(links, shardings, local[0][1], machine, job)
    memory = _memory(job, shardings, local, machine)
    far = _far(job, local[0], blocks[0], memory, machine)
    return _put_together(job, shardings, links, blocks, exchange, memory, far)


def _sizes(job: Job, shardings: Shardings, batch: Array) -> list[tuple[Segment, dict[str, Array]]]:
    """Each segment with the sizes of its dims on the fullest device."""
    found = []
    for segment in job.graph.segments:
        sizes = {
            dim: np.full(len(shardings), float(n)) for dim, n in segment_sizes(job.graph, segment).items()
        }
        if segment.block.ops[0].sparse:
            sizes |= {
                "batch": batch,
                TABLES: np.ceil(sizes[TABLES] / shardings.tables),
                TABLE_ROWS: np.ceil(sizes[TABLE_ROWS] / shardings.rows),
                WIDTH: np.ceil(sizes[WIDTH] / shardings.columns),
                "pooling": sizes["pooling"] / shardings.rows,
            }
        else:
            sizes["batch"] = batch / shardings.devices
        found.append((segment, sizes))
    return found


def _block(job: Job, segment: Segment, sizes: Sizes, machine: Machine) -> _Block:
    none = np.zeros(len(sizes["batch"]))
    sums = {"matmul": [none, none], "streaming": [none, none]}
    kernels = 0.0
    for op in segment.block.ops:
        time = op_time(op, sizes, machine)
        kind = sums["matmul" if op.kind == "matmul" else "streaming"]
        kind[0] = kind[0] + time.forward_s
        kind[1] = kind[1] + time.data_s + time.weight_s
        kernels += float(time.kernels[0])
    tables = segment.block.ops[0].sparse
    return _Block(
        matmul_s=(sums["matmul"][0], sums["matmul"][1]),
        streaming_s=(sums["streaming"][0], sums["streaming"][1]),
        kernels=kernels,
        parameters=0.0 if tables else float(segment_parameters(job.graph, segment)),
    )


def _exchanges_s(
    links: Sequence[Link], shardings: Shardings, sizes: Sizes, machine: Machine, job: Job
) -> tuple[Array, Array]:
    """What is looked up goes to the devices of its samples, and its gradients come back.

    Parts by rows are sums: they are scattered over the devices that share them, which lie next to each other
    unless tables are cut into columns, too; what is left goes all to all.
    """
    whole = sizes["batch"] * sizes[TABLES] * sizes[WIDTH] * machine.element_bytes
    stride = shardings.columns.astype(float)
    rows = span(links, shardings.rows.astype(float), stride)
    others = shardings.tables * shardings.columns
    across = span(
        links, others.astype(float), np.where(shardings.tables > 1, shardings.rows, 1).astype(float)
    )
    traded = all_to_all_s(links, across, whole / shardings.rows)
    shown = 1.0 - job.stack.ep_overlap
    forward = reduce_scatter_s(links, rows, whole) + traded
    backward = all_gather_s(links, rows, whole) + traded
    return forward * shown, backward * shown


def _put_together(
    job: Job,
    shardings: Shardings,
    links: Sequence[Link],
    blocks: Sequence[_Block],
    exchange: tuple[Array, Array],
    memory: dict[str, Array],
    far: "_Far",
) -> Estimates:
    stack, count = job.stack, len(shardings)
    between = next(
        index for index, each in enumerate(job.graph.segments) if each.block.name == "interaction.end"
    )
    ways = [
        [
            smooth_max(_busy(blocks, index, way, exchange, meets), _host(job, blocks, index, meets))
            for index in _order(blocks, way)
        ]
        for way, meets in ((0, between), (1, 0))
    ]
    forward_s = sum(ways[0], start=np.zeros(count))
    reduce_s, update = _reduce_s(job, shardings, links, blocks), _update_s(job, shardings, blocks)
    compute_end, reduced_end = _beside(job, blocks, ways[1], reduce_s)
    share = stack.dp_overlap
    left = (1.0 - share) * reduce_s
    step = forward_s + np.maximum(compute_end, reduced_end) + left + update + stack.step_s + far.added_s
    busy = sum((each.device_s(way) for each in blocks for way in (0, 1)), start=np.zeros(count))
    none = np.zeros(count)
    time = dict.fromkeys(TIMES, none) | {
        "matmul": sum((m for each in blocks for m in each.matmul_s), start=none),
        "streaming": sum((m for each in blocks for m in each.streaming_s), start=none),
        "ep": exchange[0] + exchange[1],
        "dp": left + np.maximum(reduced_end - compute_end, 0.0),
        "optimizer": update,
        "tiers": far.added_s,
        "overhead": np.full(count, stack.step_s),
    }
    time["launch"] = np.maximum(step - sum(time.values(), start=none), 0.0)
    shown = max(1.0 - stack.ep_overlap, 1e-9)
    moved = dict.fromkeys(COMMUNICATION, none) | {"ep": time["ep"] / shown, "dp": reduce_s}
    total = sum(memory.values(), start=none)
    return Estimates(
        step_s=step, busy_s=busy, time_s=time, communication_s=moved, memory_bytes=memory, total_bytes=total,
        host_bytes=none, tiers_s=far.added_s, tier_bytes=far.tier_bytes,
        feasible=total <= job.cluster.capacity_bytes,
    )  # fmt: skip


def _order(blocks: Sequence[_Block], way: int) -> range:
    return range(len(blocks)) if way == 0 else range(len(blocks) - 1, -1, -1)


def _busy(blocks: Sequence[_Block], index: int, way: int, exchange: tuple[Array, Array], meets: int) -> Array:
    """A block's time on the device, with the exchange where it meets one."""
    own = blocks[index].device_s(way)
    return own + exchange[way] if index == meets else own


def _host(job: Job, blocks: Sequence[_Block], index: int, meets: int) -> Array:
    """What the host takes to launch a block."""
    kernels = blocks[index].kernels + (1.0 if index == meets else 0.0)
    return np.full(1, kernels * job.stack.op_s)


def _reduce_s(job: Job, shardings: Shardings, links: Sequence[Link], blocks: Sequence[_Block]) -> Array:
    """The sum of the MLPs' gradients over all devices."""
    width = _widths(job, shardings).reduced
    devices = shardings.devices.astype(float)
    size = np.full(len(shardings), width * sum(each.parameters for each in blocks))
    return all_reduce_s(links, span(links, devices, np.ones(len(shardings))), size)


def _widths(job: Job, shardings: Shardings) -> StateWidths:
    return state_widths(job.stack, job.cluster.device.family, shardings.precision)


def _update_s(job: Job, shardings: Shardings, blocks: Sequence[_Block]) -> Array:
    """The update of the MLPs: every device has all of them."""
    widths = _widths(job, shardings)
    traffic = 2.0 * widths.end_optimizer + 2.0 * widths.gradient + widths.weight
    owned = np.full(len(shardings), sum(each.parameters for each in blocks))
    return update_s(job.cluster.device, job.efficiency, owned * traffic)


def _beside(
    job: Job, blocks: Sequence[_Block], backward: Sequence[Array], reduce_s: Array
) -> tuple[Array, Array]:
    """When the backward ends, and when the sums beside it do, each layer's after its gradient."""
    stack, total = job.stack, max(sum(each.parameters for each in blocks), 1.0)
    at, sent = np.zeros_like(reduce_s), np.zeros_like(reduce_s)
    for index, own in zip(_order(blocks, 1), backward, strict=True):
        at = at + own
        part = stack.dp_overlap * reduce_s * blocks[index].parameters / total
        sent = np.where(part > 0, np.maximum(sent, at) + part, sent)
    hidden = np.minimum(stack.dp_overlap * reduce_s, at)
    return at + stack.interference * hidden, sent


def _memory(
    job: Job, shardings: Shardings, local: Sequence[tuple[Segment, Sizes]], machine: Machine
) -> dict[str, Array]:
    """Bytes on the fullest device."""
    stack, (_, tables) = job.stack, local[0]
    widths = _widths(job, shardings)
    weight, optimizer, gradient = widths.weight, widths.end_optimizer, widths.gradient
    dense = float(sum(segment_parameters(job.graph, segment) for segment, _ in local[1:]))
    rows = tables[TABLES] * tables[TABLE_ROWS]
    looked_up = tables["batch"] * tables[TABLES] * tables[WIDTH] * machine.element_bytes
    kept = sum(
        (
            bytes_of(tensor, sizes, machine.element_bytes)
            for segment, sizes in local[1:]
            for tensor in saved_tensors(segment.block)
        ),
        start=looked_up,
    )
    parts = {
        "weights": weight * (rows * tables[WIDTH] + dense),
        "gradients": np.full(len(rows), gradient * dense),
        "optimizer": ROW_STATE_BYTES * rows + optimizer * dense,
        "activations": kept,
    }
    reserve = stack.reserve_share * sum(parts.values(), start=np.zeros(len(rows)))
    parts |= {"buffers": np.full(len(rows), stack.context_bytes), "reserve": reserve}
    return {name: parts[name] for name in MEMORY}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Far:
    """What lookups in expanded memory add to a step, and what lies there."""

    added_s: Array
    tier_bytes: Mapping[tuple[str, str], Array]


def _far(
    job: Job, tables: tuple[Segment, Sizes], block: _Block, memory: Mapping[str, Array], machine: Machine
) -> _Far:
    """What of the tables does not fit beside all else lies in expanded tiers; rows are met evenly."""
    (segment, sizes) = tables
    (lookup,) = segment.block.ops
    expansion = build_expansion(job.cluster, job.efficiency)
    count = len(sizes["batch"])
    if expansion is None:
        return _Far(added_s=np.zeros(count), tier_bytes={})
    more = 1.0 + job.stack.reserve_share
    size = more * tables_bytes(sizes, machine.precision, job.stack)
    pinned = sum(memory.values(), start=np.zeros(count)) - size
    shares = tier_shares(expansion, {TABLES_CLASS: size}, pinned)
    touched = table_traffic_bytes(lookup, sizes, machine.element_bytes)
    moved = op_traffic_bytes(lookup, sizes, machine)
    own = {TABLES_CLASS: shares[TABLES_CLASS], "working": tuple(np.zeros(count) for _ in expansion.names)}
    added = [
        added_s(expansion, own, block.streaming_s[way], moved[way], {TABLES_CLASS: touched[way]})
        for way in (0, 1)
    ]
    lying = {}
    for tier, name in enumerate(expansion.names):
        lying[name, "weights"] = size * shares[TABLES_CLASS][tier]
        lying[name, "traffic"] = (touched[0] + touched[1]) * shares[TABLES_CLASS][tier]
    return _Far(added_s=added[0] + added[1], tier_bytes=lying)


def tables_bytes(sizes: Sizes, precision: str, stack: Stack) -> Array:
    """Bytes of the tables of one device, with the state of their rows."""
    rows = sizes[TABLES] * sizes[TABLE_ROWS]
    weight = state_widths(stack, "", precision).weight
    return rows * (weight * sizes[WIDTH] + ROW_STATE_BYTES)
