"""What one block of the model costs on one device, for every distinct shape."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.operators import (
    Machine,
    Sizes,
    attention_keys,
    bytes_of,
    op_time,
    op_traffic_bytes,
)
from trainwright.estimate.shapes import TENSOR_DIMS, Shapes, split_sizes
from trainwright.model.graph import (
    Block,
    Graph,
    Op,
    Region,
    Segment,
    Tensor,
    query_dim,
    query_groups,
    segment_sizes,
)
from trainwright.model.totals import saved_tensors

Array = NDArray[np.float64]

_SPLIT_DIMS = frozenset(TENSOR_DIMS)
_STREAMING = ("norm", "elementwise", "gather", "loss", "permute")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """Costs of a block per microbatch and device: arrays over shapes, which add up over blocks."""

    matmul_forward_s: Array
    matmul_data_s: Array
    matmul_weight_s: Array
    attention_forward_s: Array
    attention_backward_s: Array
    streaming_forward_s: Array
    streaming_backward_s: Array
    selective_s: Array  # what selective recomputation repeats
    kernels: Array
    tp_reductions: Array  # sums over tensor-parallel ranks of a hidden state
    hidden_bytes: Array  # of one hidden state (of all streams), whole over tensor-parallel ranks
    kv_bytes: Array  # keys and values of the local queries' part of the sequence, for context parallelism
    routed_bytes: Array  # tokens that leave for experts, one way
    expert_blocks: Array  # blocks whose tokens are routed
    saved_bytes: Array  # kept for backward without recomputation
    selective_bytes: Array  # kept with selective recomputation
    input_bytes: Array  # kept with full recomputation
    dense_parameters: Array  # owned by one device
    expert_parameters: Array
    # Asked for only where devices have expanded memory: else nothing.
    traffic_forward_bytes: Array  # between memory and chip
    traffic_backward_bytes: Array
    read_dense: Array  # parameters that every microbatch reads whole: all but tables that are looked up in
    read_expert: Array

    def __add__(self, other: "BlockCosts") -> "BlockCosts":
        return BlockCosts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def scaled(self, factor: float) -> "BlockCosts":
        """Costs of `factor` such blocks."""
        return BlockCosts(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


def block_costs(
    graph: Graph, segment: Segment, seq: int, shapes: Shapes, machine: Machine, *, traffic: bool = False
) -> BlockCosts:
    """Costs of one block of a segment at every shape; with `traffic`, also what it moves."""
    own = float(segment.seq or seq)
    lengths = {"seq": own, "seq_enc": float(graph.sizes.get("seq_enc", seq))}
    regions: tuple[Region, ...] = ("sequence", "attention", "experts")
    whole = segment_sizes(graph, segment)
    by_region = {region: split_sizes(whole, lengths, shapes, region) for region in regions}
    ops = segment.block.ops
    time = _times(ops, by_region, machine, graph.passes)
    saved = _saved_bytes(segment.block, by_region, machine, shapes.etp)
    hidden = _hidden_bytes(segment.block, by_region["attention"], machine)
    columns = (
        time
        | saved
        | {
            "expert_blocks": np.full(len(shapes), float(any(op.name == "dispatch" for op in ops))),
            "tp_reductions": _reductions(segment.block, by_region["attention"], hidden, machine),
            "hidden_bytes": hidden,
            "kv_bytes": _kv_bytes(segment.block, by_region["attention"], machine),
            "routed_bytes": _routed_bytes(ops, by_region["experts"], machine) / shapes.etp,
            "input_bytes": hidden / np.where(shapes.sp > 0, shapes.tp, 1.0),
            "dense_parameters": _parameters(ops, by_region, expert=False),
            "expert_parameters": _parameters(ops, by_region, expert=True),
        }
        | (_traffic(ops, by_region, machine, graph.passes) if traffic else _NO_TRAFFIC)
    )
    return BlockCosts(
        **{name: np.broadcast_to(each, len(shapes)).astype(float) for name, each in columns.items()}
    )


def largest_costs(costs: Sequence[BlockCosts]) -> BlockCosts:
    """The largest of each cost among several blocks."""
    return BlockCosts(
        **{f.name: np.maximum.reduce([getattr(each, f.name) for each in costs]) for f in fields(BlockCosts)}
    )


def no_costs(shapes: Shapes) -> BlockCosts:
    """The costs of nothing."""
    return BlockCosts(**{field.name: np.zeros(len(shapes)) for field in fields(BlockCosts)})


def tensor_reductions(block: Block) -> int:
    """Hidden states that tensor parallelism must sum in one forward pass of a block."""
    return len(reduced_tensors(block))


def reduced_tensors(block: Block) -> tuple[Tensor, ...]:
    """The tensors that tensor parallelism must sum in one forward pass of a block.

    Partial sums wait until an op outside the split regions reads them, so the branches of a parallel
    block share one reduction.
    """
    reduced: list[Tensor] = []
    pending: Tensor | None = None
    for op in block.ops:
        if set(op.contracted) & _SPLIT_DIMS or (op.kind == "gather" and op.region == "vocab"):
            pending = op.output
        elif pending is not None and op.region == "sequence" and op.kind != "norm":
            reduced.append(pending)
            pending = None
    return (*reduced, pending) if pending is not None else tuple(reduced)


def _reductions(block: Block, sizes: Sizes, hidden: Array, machine: Machine) -> Array:
    """Sums over tensor-parallel ranks, in hidden states: one each, or by size if streams are several."""
    if not block.outputs:
        return np.full(len(sizes["batch"]), float(tensor_reductions(block)))
    parts = [bytes_of(each, sizes, machine.element_bytes) for each in reduced_tensors(block)]
    return sum(parts, start=np.zeros(1)) / hidden


def _sizing(op: Op) -> Region:
    return op.region if op.region in ("sequence", "experts") else "attention"


def _times(
    ops: Iterable[Op], by_region: dict[Region, dict[str, Array]], machine: Machine, passes: int
) -> dict[str, Array]:
    """Seconds by kind of work; the forward as often as it is passed."""
    sums: dict[str, Array] = {
        name: np.zeros(1)
        for name in ("matmul_forward_s", "matmul_data_s", "matmul_weight_s", "attention_forward_s",
                     "attention_backward_s", "streaming_forward_s", "streaming_backward_s", "selective_s",
                     "kernels")
    }  # fmt: skip
    for op in ops:
        time = op_time(op, by_region[_sizing(op)], machine)
        kind = "attention" if op.kind == "attention" else "streaming" if op.kind in _STREAMING else "matmul"
        sums[f"{kind}_forward_s"] = sums[f"{kind}_forward_s"] + passes * time.forward_s
        if kind == "matmul":
            sums["matmul_data_s"] = sums["matmul_data_s"] + time.data_s
            sums["matmul_weight_s"] = sums["matmul_weight_s"] + time.weight_s
        else:
            sums[f"{kind}_backward_s"] = sums[f"{kind}_backward_s"] + time.data_s
        if op.kind == "attention" if machine.stack.attention == "unfused" else _is_repeated(op):
            sums["selective_s"] = sums["selective_s"] + time.forward_s
        sums["kernels"] = sums["kernels"] + time.kernels
    return sums


_NO_TRAFFIC = dict.fromkeys(
    ("traffic_forward_bytes", "traffic_backward_bytes", "read_dense", "read_expert"), np.zeros(1)
)


def _traffic(
    ops: Sequence[Op], by_region: dict[Region, dict[str, Array]], machine: Machine, passes: int
) -> dict[str, Array]:
    """Bytes that ops move, forward as often as it is passed, and the parameters among them."""
    both = [op_traffic_bytes(op, by_region[_sizing(op)], machine) for op in ops]
    read = [op for op in ops if op.kind != "gather"]
    return {
        "traffic_forward_bytes": passes * sum((forward for forward, _ in both), start=np.zeros(1)),
        "traffic_backward_bytes": sum((backward for _, backward in both), start=np.zeros(1)),
        "read_dense": _parameters(read, by_region, expert=False),
        "read_expert": _parameters(read, by_region, expert=True),
    }


def _is_repeated(op: Op) -> bool:
    """Whether selective recomputation beside fused attention does an op again: cheap work inside a branch."""
    return op.kind == "norm" or (op.kind == "elementwise" and op.region != "sequence")


def _saved_bytes(
    block: Block, by_region: dict[Region, dict[str, Array]], machine: Machine, etp: Array
) -> dict[str, Array]:
    """Bytes kept for backward; of tokens that ranks of one expert gather from each other, a rank's own."""
    size = machine.element_bytes

    def kept(tensor: Tensor) -> Array:
        gathered = "top_k" in tensor.dims and "expert_ffn" not in tensor.dims
        return bytes_of(tensor, _tensor_sizes(tensor, by_region), size) / (etp if gathered else 1.0)

    tensors = [
        t for t in saved_tensors(block) if "vocab" not in t.dims
    ]  # logits are the stack's: Stack.logits_bytes
    total = sum((kept(t) for t in tensors), start=np.zeros(1))
    if machine.stack.attention == "unfused":
        matrices = sum(
            (_matrix_bytes(op, by_region["attention"], size) for op in block.ops), start=np.zeros(1)
        )
        return {"saved_bytes": total + matrices, "selective_bytes": total}
    selective = sum((kept(t) for t in _saved_selectively(block, tensors)), start=np.zeros(1))
    return {"saved_bytes": total, "selective_bytes": selective}


def _saved_selectively(block: Block, saved: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What is kept where norms and elementwise work are done again: what these do not make, and what they
    are made from. One may be made from another's result, as rotated queries from those of a norm.
    """
    again = [op for op in block.ops if _is_repeated(op)]
    made = {tensor.name for op in again for tensor in (op.output, *op.extra_outputs)}
    needed, stays = {t.name for t in saved}, {t.name: t for t in saved if t.name not in made}
    for op in reversed(again):
        if needed.isdisjoint(tensor.name for tensor in (op.output, *op.extra_outputs)):
            continue
        needed |= {tensor.name for tensor in op.inputs}
        stays |= {tensor.name: tensor for tensor in op.inputs if tensor.name not in made | stays.keys()}
    return tuple(stays.values())


def _matrix_bytes(op: Op, sizes: Sizes, size: float) -> Array:
    """Softmax result, dropout result and mask of unfused attention: 5 bytes per score at 16 bit."""
    if op.kind != "attention":
        return np.zeros(1)
    queries = np.ones(1)
    for dim in (*query_groups(op), query_dim(op)):
        queries = queries * sizes[dim]
    return queries * attention_keys(op, sizes) * (2.0 * size + 1.0)


def _tensor_sizes(tensor: Tensor, by_region: dict[Region, dict[str, Array]]) -> dict[str, Array]:
    if "top_k" in tensor.dims:
        return by_region["experts"]
    return by_region["attention" if _SPLIT_DIMS & set(tensor.dims) else "sequence"]


def _hidden_bytes(block: Block, sizes: Sizes, machine: Machine) -> Array:
    """Bytes of what one block hands to the next: one hidden state, or all of its streams."""
    if not block.outputs:
        return sizes["batch"] * sizes["seq"] * sizes["hidden"] * machine.element_bytes
    streams = {tensor for _, tensor in block.outputs}
    parts = [
        bytes_of(op.output, sizes, machine.element_bytes) for op in block.ops if op.output.name in streams
    ]
    return sum(parts, start=np.zeros(1))


def _kv_bytes(block: Block, sizes: dict[str, Array], machine: Machine) -> Array:
    if block.outputs:
        return _gathered_bytes(block.ops, sizes, machine)
    width = sizes["kv_heads"] * (sizes["head_dim"] + sizes["v_dim"])
    keys = [
        sizes["seq_enc" if op.contracted[0] == "seq_enc" else "seq"]
        for op in block.ops
        if op.kind == "attention"
    ]
    return sum(keys, start=np.zeros(1)) * sizes["batch"] * width * machine.element_bytes


def _gathered_bytes(ops: Iterable[Op], sizes: dict[str, Array], machine: Machine) -> Array:
    """One rank's share of what attention and products read of all parts of the sequence."""
    whole = [
        tensor
        for op in ops
        if op.kind in ("attention", "product")
        for tensor in op.inputs
        if "seq" not in tensor.dims
    ]
    share = sizes["seq"] / sizes["seq_kv"]
    return sum((bytes_of(each, sizes, machine.element_bytes) * share for each in whole), start=np.zeros(1))


def _routed_bytes(ops: Iterable[Op], sizes: dict[str, Array], machine: Machine) -> Array:
    if not any(op.name == "dispatch" for op in ops):
        return np.zeros(1)
    return sizes["batch"] * sizes["seq"] * sizes["top_k"] * sizes["hidden"] * machine.element_bytes


def _parameters(ops: Iterable[Op], by_region: dict[Region, dict[str, Array]], *, expert: bool) -> Array:
    total = np.zeros(1)
    for op in ops:
        if (op.kind == "grouped_matmul") == expert:
            sizes = by_region["experts" if expert else "attention"]
            for weight in op.weights:
                total = total + bytes_of(weight, sizes, 1.0)
    return total
