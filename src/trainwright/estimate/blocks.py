"""What one block of the model costs on one device, for every distinct shape."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.constants import Stack
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
from trainwright.model.totals import is_quantized, saved_tensors
from trainwright.plan.recompute_modules import FULL, NONE, Recomputed, recomputed

Array = NDArray[np.float64]

_SPLIT_DIMS = frozenset(TENSOR_DIMS)
_STREAMING = ("norm", "elementwise", "gather", "loss", "permute")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """Costs of a block per microbatch and device: arrays over shapes, which add up over blocks.

    Those under "by recomputation" have a row for each of the recomputations asked for; full recomputation
    repeats the whole forward, which its row leaves out.
    """

    matmul_forward_s: Array
    matmul_data_s: Array
    matmul_weight_s: Array
    attention_forward_s: Array
    attention_backward_s: Array
    streaming_forward_s: Array
    streaming_backward_s: Array
    kernels: Array
    tp_reductions: Array  # sums over tensor-parallel ranks of a hidden state
    hidden_bytes: Array  # of one hidden state (of all streams), whole over tensor-parallel ranks
    kv_bytes: Array  # keys and values of the local queries' part of the sequence, for context parallelism
    routed_bytes: Array  # tokens that leave for experts, one way
    expert_blocks: Array  # blocks whose tokens are routed
    saved_bytes: Array  # kept for backward without recomputation
    input_bytes: Array  # kept with full recomputation
    dense_parameters: Array  # owned by one device
    expert_parameters: Array
    # By recomputation:
    kept_bytes: Array  # kept for backward
    remade_bytes: Array  # the most that is made again at a time
    again_s: Array  # compute that is repeated
    again_gathers: Array  # hidden states that are gathered again under sequence parallelism
    again_sums: Array  # hidden states that are summed again over tensor-parallel ranks
    again_routes: Array  # exchanges of tokens with experts that are repeated
    again_attention: Array  # share of the block's attention that is repeated
    again_kernels: Array  # launches of what is repeated; of a few operators without a product, none
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


_BY_RECOMPUTATION = (
    "kept_bytes", "remade_bytes", "again_s", "again_gathers", "again_sums", "again_routes", "again_attention",
    "again_kernels",
)  # fmt: skip


def block_costs(
    graph: Graph,
    segment: Segment,
    seq: int,
    shapes: Shapes,
    machine: Machine,
    *,
    recomputes: Sequence[str] = (NONE,),
    traffic: bool = False,
) -> BlockCosts:
    """Costs of one block of a segment at every shape, with rows for some recomputations; with `traffic`, also
    what it moves.
    """
    by_region = _sizes_by_region(graph, segment, seq, shapes)
    ops = segment.block.ops
    slowdown = expert_slowdown(machine.stack, shapes)
    time = _times(ops, by_region, machine, graph.passes, slowdown)
    hidden = _hidden_bytes(segment.block, by_region["attention"], machine)
    split = np.where(shapes.sp > 0, shapes.tp, 1.0)
    again = _Again(
        block=segment.block, by_region=by_region, machine=machine, etp=shapes.etp, hidden=hidden,
        slowdown=slowdown,
    )  # fmt: skip
    rows = [again.row(each, hidden / split) for each in recomputes]
    columns = (
        time
        | {
            "saved_bytes": again.kept_bytes(saved_tensors(segment.block), {op.name for op in ops}),
            "expert_blocks": np.full(len(shapes), float(any(op.name == "dispatch" for op in ops))),
            "tp_reductions": _reductions(segment.block, by_region["attention"], hidden, machine),
            "hidden_bytes": hidden,
            "kv_bytes": _kv_bytes(segment.block, by_region["attention"], machine),
            "routed_bytes": _routed_bytes(ops, by_region["experts"], machine) / shapes.etp,
            "input_bytes": hidden / split,
            "dense_parameters": _parameters(ops, by_region, expert=False),
            "expert_parameters": _parameters(ops, by_region, expert=True),
        }
        | (_traffic(ops, by_region, machine, graph.passes) if traffic else _NO_TRAFFIC)
    )
    count = len(shapes)
    return BlockCosts(
        **{name: np.broadcast_to(each, count).astype(float) for name, each in columns.items()},
        **{
            name: np.stack([np.broadcast_to(row[name], count) for row in rows]).astype(float)
            for name in _BY_RECOMPUTATION
        },
    )


def time_costs(
    graph: Graph, segment: Segment, seq: int, shapes: Shapes, machine: Machine, *, experts: bool
) -> BlockCosts:
    """Of one block of a segment, what bounds its time: costs of the ops of experts, or of all others.

    Only the seconds of ops and what is communicated beside them are found.
    """
    by_region, ops = _sizes_by_region(graph, segment, seq, shapes), segment.block.ops
    own = [op for op in ops if (_sizing(op) == "experts") == experts]
    found = _times(own, by_region, machine, graph.passes, expert_slowdown(machine.stack, shapes))
    if experts:
        found["routed_bytes"] = _routed_bytes(ops, by_region["experts"], machine) / shapes.etp
    else:
        sizes = by_region["attention"]
        hidden = _hidden_bytes(segment.block, sizes, machine)
        found |= {
            "hidden_bytes": hidden,
            "tp_reductions": _reductions(segment.block, sizes, hidden, machine),
            "kv_bytes": _kv_bytes(segment.block, sizes, machine),
        }
    return replace(no_costs(shapes), **found)


def _sizes_by_region(
    graph: Graph, segment: Segment, seq: int, shapes: Shapes
) -> dict[Region, dict[str, Array]]:
    lengths = {"seq": float(segment.seq or seq), "seq_enc": float(graph.sizes.get("seq_enc", seq))}
    regions: tuple[Region, ...] = ("sequence", "attention", "experts")
    whole = segment_sizes(graph, segment)
    return {region: split_sizes(whole, lengths, shapes, region) for region in regions}


def largest_costs(costs: Sequence[BlockCosts]) -> BlockCosts:
    """The largest of each cost among several blocks."""
    return BlockCosts(
        **{f.name: np.maximum.reduce([getattr(each, f.name) for each in costs]) for f in fields(BlockCosts)}
    )


def least_costs(costs: Sequence[BlockCosts]) -> BlockCosts:
    """The least of each cost among several blocks."""
    return BlockCosts(
        **{f.name: np.minimum.reduce([getattr(each, f.name) for each in costs]) for f in fields(BlockCosts)}
    )


def no_costs(shapes: Shapes) -> BlockCosts:
    """The costs of nothing, whatever is recomputed."""
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


def _is_routed(op: Op) -> bool:
    """Whether an op has tokens of other ranks; permutations are of a rank's own."""
    return op.region == "experts" and op.kind != "permute"


def expert_slowdown(stack: Stack, shapes: Shapes) -> Array:
    """How much longer experts and their all-to-alls take on the rank with most routed tokens.

    Without expert parallelism each rank routes its own tokens, and has as many as any other.
    """
    return np.where(shapes.ep > 1, stack.expert_slowdown, 1.0)


def _times(
    ops: Iterable[Op],
    by_region: dict[Region, dict[str, Array]],
    machine: Machine,
    passes: int,
    slowdown: Array,
) -> dict[str, Array]:
    """Seconds by kind of work; the forward as often as it is passed, those of experts on the slowest rank."""
    sums: dict[str, Array] = {
        name: np.zeros(1)
        for name in ("matmul_forward_s", "matmul_data_s", "matmul_weight_s", "attention_forward_s",
                     "attention_backward_s", "streaming_forward_s", "streaming_backward_s", "kernels")
    }  # fmt: skip
    for op in ops:
        time = op_time(op, by_region[_sizing(op)], machine)
        time = time.scaled(slowdown) if _is_routed(op) else time
        kind = "attention" if op.kind == "attention" else "streaming" if op.kind in _STREAMING else "matmul"
        sums[f"{kind}_forward_s"] = sums[f"{kind}_forward_s"] + passes * time.forward_s
        if kind == "matmul":
            sums["matmul_data_s"] = sums["matmul_data_s"] + time.data_s
            sums["matmul_weight_s"] = sums["matmul_weight_s"] + time.weight_s
        else:
            sums[f"{kind}_backward_s"] = sums[f"{kind}_backward_s"] + time.data_s
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """One block at every shape, asked what recomputation keeps and repeats of it."""

    block: Block
    by_region: dict[Region, dict[str, Array]]
    machine: Machine
    etp: Array
    hidden: Array  # bytes of one hidden state, whole over tensor-parallel ranks
    slowdown: Array  # of experts

    def row(self, recompute: str, input_bytes: Array) -> dict[str, Array]:
        """The columns of one recomputation."""
        if recompute == FULL:
            return dict.fromkeys(_BY_RECOMPUTATION, np.zeros(1)) | {"kept_bytes": input_bytes}
        found = recomputed(self.block, recompute)
        ops = [op for run in found.runs for op in run]
        work = [self._repeated_s(op, found) for op in ops]
        attention = sum(op.kind == "attention" for op in self.block.ops)
        made = [
            self.kept_bytes(tensors, {op.name for op in run}, found.ops)
            for run, tensors in zip(found.runs, found.remade, strict=True)
        ]
        return {
            "kept_bytes": self.kept_bytes(
                found.kept, {op.name for op in self.block.ops} - found.ops, found.ops
            ),
            "remade_bytes": reduce(np.maximum, made, np.zeros(1)),
            "again_s": sum(work, start=np.zeros(1)),
            "again_gathers": self._gathers(found),
            "again_sums": np.full(1, float(_sums_again(self.block, found))),
            "again_routes": np.full(1, float(_routes_again(self.block, found))),
            "again_attention": np.full(1, sum(op.kind == "attention" for op in ops) / max(attention, 1)),
            "again_kernels": self._launches(ops),
        }

    def _launches(self, ops: Sequence[Op]) -> Array:
        """What the host launches again; operators without a product are launched with the backward."""
        if not any(op.kind in ("matmul", "grouped_matmul") for op in ops):
            return np.zeros(1)
        each = [op_time(op, self.by_region[_sizing(op)], self.machine).kernels for op in ops]
        return sum(each, start=np.zeros(1))

    def _repeated_s(self, op: Op, found: Recomputed) -> Array:
        """What an op takes again: for some of its results, the share that makes them."""
        sizes, some = self.by_region[_sizing(op)], found.results[op.name]
        parts = {each.name: bytes_of(each, sizes, 1.0) for each in (op.output, *op.extra_outputs)}
        slowdown = self.slowdown if _is_routed(op) else 1.0
        whole_s = op_time(op, sizes, self.machine).forward_s * slowdown
        if not some or len(some) == len(parts):
            return whole_s
        return np.asarray(whole_s * sum(parts[name] for name in some) / sum(parts.values()))

    def kept_bytes(
        self, tensors: Iterable[Tensor], ops: Collection[str], again: Collection[str] = ()
    ) -> Array:
        """Bytes of tensors where some ops run again, and of the score matrices of some ops; of tokens that
        ranks of one expert gather from each other, a rank's own.
        """
        size, total = self.machine.element_bytes, np.zeros(1)
        for tensor in tensors:
            if "vocab" not in tensor.dims:  # logits are the stack's: Stack.logits_bytes
                gathered = "top_k" in tensor.dims and "expert_ffn" not in tensor.dims
                own = bytes_of(tensor, _tensor_sizes(tensor, self.by_region), size)
                own = own * self._width(tensor, again)
                if "top_k" in tensor.dims:
                    own = own * self.machine.stack.routed_imbalance
                total = total + own / (self.etp if gathered else 1.0)
        if self.machine.stack.attention == "unfused":
            sizes = self.by_region["attention"]
            for op in self.block.ops:
                total = total + (_matrix_bytes(op, sizes, size) if op.name in ops else 0.0)
        return total

    def _width(self, tensor: Tensor, again: Collection[str]) -> float:
        """How wide a kept tensor is, relative to the compute dtype.

        In fp8 and fp4 a linear keeps its input quantized, in addition to the tensor itself where another op
        needs that: one that is not a linear, or that runs again from it.
        """
        low = self.machine.kept_input_width
        if not (self.machine.quantizes_inputs and tensor.element == "activation"):
            return 1.0
        name = tensor.name
        linears = [op for op in self.block.ops if is_quantized(op) and any(t.name == name for t in op.saved)]
        whole = any(
            any(t.name == name for t in (op.inputs if op.name in again else op.saved))
            for op in self.block.ops
            if op.name in again or not is_quantized(op)
        )
        return float(whole) + low * any(op.name not in again for op in linears) or 1.0

    def _gathers(self, found: Recomputed) -> Array:
        """Whole hidden states' worth of what ops read of other tensor-parallel ranks' parts of the sequence,
        where either is repeated.
        """
        maker = {tensor.name: op for op in self.block.ops for tensor in (op.output, *op.extra_outputs)}
        again = {
            tensor.name: tensor
            for op in self.block.ops
            if op.region in ("attention", "ffn", "shared") and op.kind == "matmul"
            for tensor in op.inputs
            if (tensor.name not in maker or maker[tensor.name].region == "sequence")
            and (op.name in found.ops or (tensor.name in maker and maker[tensor.name].name in found.ops))
        }
        sizes = self.by_region["attention"]
        parts = [bytes_of(each, sizes, self.machine.element_bytes) for each in again.values()]
        return sum(parts, start=np.zeros(1)) / self.hidden


def _sums_again(block: Block, found: Recomputed) -> int:
    """Sums over tensor-parallel ranks that are repeated: of partial values that are made and read again."""
    partial = {
        op.output.name
        for op in block.ops
        if op.name in found.ops and op.kind == "matmul" and set(op.contracted) & _SPLIT_DIMS
    }
    read = {
        tensor.name
        for op in block.ops
        if op.name in found.ops and (op.region == "sequence" or op.kind == "permute")
        for tensor in op.inputs
    }
    return len(partial & read)


def _routes_again(block: Block, found: Recomputed) -> int:
    """Exchanges of tokens with experts that are repeated: on the way there, and back."""
    there = [op for op in block.ops if op.kind == "grouped_matmul" and op.contracted == ("hidden",)]
    back = [op for op in block.ops if op.kind == "permute" and op.name != "dispatch"]
    return sum(op.name in found.ops for op in (*there, *back))


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
