"""What one block of the model costs on one device, for every distinct shape."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.operators import Machine, Sizes, attention_keys, bytes_of, op_time
from trainwright.estimate.shapes import TENSOR_DIMS, Shapes, split_sizes
from trainwright.model.graph import Block, Graph, Op, Region, Segment, Tensor
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
    hidden_bytes: Array  # of one hidden state, whole over tensor-parallel ranks
    kv_bytes: Array  # keys and values of the local queries' part of the sequence, for context parallelism
    routed_bytes: Array  # tokens that leave for experts, one way
    saved_bytes: Array  # kept for backward without recomputation
    selective_bytes: Array  # kept with selective recomputation
    input_bytes: Array  # kept with full recomputation
    dense_parameters: Array  # owned by one device
    expert_parameters: Array

    def __add__(self, other: "BlockCosts") -> "BlockCosts":
        return BlockCosts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def scaled(self, factor: float) -> "BlockCosts":
        """Costs of `factor` such blocks."""
        return BlockCosts(**{f.name: getattr(self, f.name) * factor for f in fields(self)})


def block_costs(graph: Graph, segment: Segment, seq: int, shapes: Shapes, machine: Machine) -> BlockCosts:
    """Costs of one block of a segment at every shape."""
    own = float(segment.seq or seq)
    lengths = {"seq": own, "seq_enc": float(graph.sizes.get("seq_enc", seq))}
    regions: tuple[Region, ...] = ("sequence", "attention", "experts")
    by_region = {region: split_sizes(graph.sizes, lengths, shapes, region) for region in regions}
    ops = segment.block.ops
    time = _times(ops, by_region, machine)
    saved = _saved_bytes(segment.block, by_region, machine)
    hidden = _hidden_bytes(graph, by_region, machine)
    columns = (
        time
        | saved
        | {
            "tp_reductions": np.full(len(shapes), float(tensor_reductions(segment.block))),
            "hidden_bytes": hidden,
            "kv_bytes": _kv_bytes(ops, by_region["attention"], machine),
            "routed_bytes": _routed_bytes(ops, by_region["experts"], machine) / shapes.etp,
            "input_bytes": hidden / np.where(shapes.sp > 0, shapes.tp, 1.0),
            "dense_parameters": _parameters(ops, by_region, expert=False),
            "expert_parameters": _parameters(ops, by_region, expert=True),
        }
    )
    return BlockCosts(
        **{name: np.broadcast_to(each, len(shapes)).astype(float) for name, each in columns.items()}
    )


def no_costs(shapes: Shapes) -> BlockCosts:
    """The costs of nothing."""
    return BlockCosts(**{field.name: np.zeros(len(shapes)) for field in fields(BlockCosts)})


def tensor_reductions(block: Block) -> int:
    """Hidden states that tensor parallelism must sum in one forward pass of a block.

    Partial sums wait until an op outside the split regions reads them, so the branches of a parallel
    block share one reduction.
    """
    count, pending = 0, False
    for op in block.ops:
        if set(op.contracted) & _SPLIT_DIMS or (op.kind == "gather" and op.region == "vocab"):
            pending = True
        elif pending and op.region == "sequence" and op.kind != "norm":
            count, pending = count + 1, False
    return count + pending


def _sizing(op: Op) -> Region:
    return op.region if op.region in ("sequence", "experts") else "attention"


def _times(
    ops: Iterable[Op], by_region: dict[Region, dict[str, Array]], machine: Machine
) -> dict[str, Array]:
    sums: dict[str, Array] = {
        name: np.zeros(1)
        for name in ("matmul_forward_s", "matmul_data_s", "matmul_weight_s", "attention_forward_s",
                     "attention_backward_s", "streaming_forward_s", "streaming_backward_s", "selective_s",
                     "kernels")
    }  # fmt: skip
    for op in ops:
        time = op_time(op, by_region[_sizing(op)], machine)
        kind = "attention" if op.kind == "attention" else "streaming" if op.kind in _STREAMING else "matmul"
        sums[f"{kind}_forward_s"] = sums[f"{kind}_forward_s"] + time.forward_s
        if kind == "matmul":
            sums["matmul_data_s"] = sums["matmul_data_s"] + time.data_s
            sums["matmul_weight_s"] = sums["matmul_weight_s"] + time.weight_s
        else:
            sums[f"{kind}_backward_s"] = sums[f"{kind}_backward_s"] + time.data_s
        if op.kind in _recomputed(machine):
            sums["selective_s"] = sums["selective_s"] + time.forward_s
        sums["kernels"] = sums["kernels"] + time.kernels
    return sums


def _recomputed(machine: Machine) -> tuple[str, ...]:
    """What selective recomputation repeats: the s×s matrices if they exist, else the cheap streaming work."""
    return ("attention",) if machine.stack.attention == "unfused" else ("norm", "elementwise")


def _saved_bytes(
    block: Block, by_region: dict[Region, dict[str, Array]], machine: Machine
) -> dict[str, Array]:
    size = machine.element_bytes
    tensors = [
        t for t in saved_tensors(block) if "vocab" not in t.dims
    ]  # logits are the stack's: Stack.logits_bytes
    total = sum((bytes_of(t, _tensor_sizes(t, by_region), size) for t in tensors), start=np.zeros(1))
    dropped = np.zeros(1)
    if machine.stack.attention == "unfused":
        matrices = sum(
            (_matrix_bytes(op, by_region["attention"], size) for op in block.ops), start=np.zeros(1)
        )
        total, dropped = total + matrices, matrices
    else:
        remade = {
            op.output.name
            for op in block.ops
            if op.kind in ("norm", "elementwise") and op.region != "sequence"
        }
        remade |= {op.output.name for op in block.ops if op.kind == "norm"}
        dropped = sum(
            (bytes_of(t, _tensor_sizes(t, by_region), size) for t in tensors if t.name in remade),
            start=np.zeros(1),
        )
    return {"saved_bytes": total, "selective_bytes": total - dropped}


def _matrix_bytes(op: Op, sizes: Sizes, size: float) -> Array:
    """Softmax result, dropout result and mask of unfused attention: 5 bytes per score at 16 bit."""
    if op.kind != "attention":
        return np.zeros(1)
    scores = sizes["batch"] * sizes["heads"] * sizes["seq"] * attention_keys(op, sizes)
    return scores * (2.0 * size + 1.0)


def _tensor_sizes(tensor: Tensor, by_region: dict[Region, dict[str, Array]]) -> dict[str, Array]:
    if "top_k" in tensor.dims:
        return by_region["experts"]
    return by_region["attention" if _SPLIT_DIMS & set(tensor.dims) else "sequence"]


def _hidden_bytes(graph: Graph, by_region: dict[Region, dict[str, Array]], machine: Machine) -> Array:
    sizes = by_region["attention"]
    return sizes["batch"] * sizes["seq"] * float(graph.sizes["hidden"]) * machine.element_bytes


def _kv_bytes(ops: Iterable[Op], sizes: dict[str, Array], machine: Machine) -> Array:
    width = sizes["kv_heads"] * (sizes["head_dim"] + sizes["v_dim"])
    keys = [
        sizes["seq_enc" if op.contracted[0] == "seq_enc" else "seq"] for op in ops if op.kind == "attention"
    ]
    return sum(keys, start=np.zeros(1)) * sizes["batch"] * width * machine.element_bytes


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
