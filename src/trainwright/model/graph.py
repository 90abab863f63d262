"""A model as operators over named dims, grouped in blocks that repeat."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

Kind = Literal["matmul", "grouped_matmul", "attention", "norm", "elementwise", "gather", "loss", "permute"]
Region = Literal["sequence", "attention", "ffn", "experts", "shared", "vocab"]
Element = Literal["activation", "fp32", "mask", "index"]

# Bytes per element by role; "activation" is the compute dtype of the run (2 for bf16/fp16, 4 for fp32).
ELEMENT_BYTES: Mapping[str, int] = {"fp32": 4, "mask": 1, "index": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A logical tensor: a name and the named dims that span it."""

    name: str
    dims: tuple[str, ...]
    element: Element = "activation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator: what it reads, owns and writes, and which dims it sums over.

    A dim of the output splits into shards; a dim in `contracted` splits into partial values.
    `region` says which parallel axes may split it: `sequence` ops (norms, residuals) are replicated over
    tensor parallel ranks, or split on `seq` by sequence parallelism; `attention`, `ffn`, `shared` and `vocab`
    ops are split by tensor parallelism on heads, ffn and vocab; `experts` ops by expert parallelism.
    `saved` are the tensors that the backward pass of this op reads, besides its weights.
    """

    name: str
    kind: Kind
    region: Region
    inputs: tuple[Tensor, ...]
    output: Tensor
    extra_outputs: tuple[Tensor, ...] = ()  # k and v beside q; up beside gate
    weights: tuple[Tensor, ...] = ()
    contracted: tuple[str, ...] = ()
    saved: tuple[Tensor, ...] = ()
    window: int | None = None  # attention only: sliding window in tokens
    causal: bool = True  # attention only


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A run of operators that repeats: a layer, the embedding, the head."""

    name: str
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """`count` equal blocks after one another."""

    block: Block
    count: int
    seq: int | None = None  # tokens per sample where they are not the run's: an encoder, an image


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model: segments in order, and the size of every dim but `batch` and `seq`.

    `top_k` tokens-per-expert routing and the number of experts are sizes too (`top_k`, `experts`).
    """

    name: str
    segments: tuple[Segment, ...]
    sizes: Mapping[str, int]
    tied: frozenset[str] = frozenset()  # names of weights that appear twice but are stored once


def is_layer(block: Block) -> bool:
    """Whether a block is one of those that pipeline stages divide: all but the ends of a stack."""
    return not block.name.endswith(("embedding", "head", "end"))


def dim_sizes(graph: Graph, segment: Segment, batch: int, seq: int) -> dict[str, int]:
    """The size of every dim in `segment`, the symbolic ones included: batch, seq, seq_kv, seq_enc."""
    own = segment.seq or seq
    return {"seq_enc": seq, **graph.sizes, "batch": batch, "seq": own, "seq_kv": own}


def elements(tensor: Tensor, sizes: Mapping[str, int]) -> int:
    """The number of elements of a tensor."""
    return prod(sizes[dim] for dim in tensor.dims)


def block_parameters(block: Block, graph: Graph) -> int:
    """Parameters that one block owns (tied weights are counted where they stand)."""
    return sum(elements(weight, graph.sizes) for op in block.ops for weight in op.weights)


def parameters(graph: Graph) -> int:
    """Stored parameters of the model: a tied weight counts once."""
    total = sum(segment.count * block_parameters(segment.block, graph) for segment in graph.segments)
    seen: dict[str, int] = {}
    for segment in graph.segments:
        for op in segment.block.ops:
            for weight in op.weights:
                if weight.name in graph.tied:
                    seen[weight.name] = seen.get(weight.name, 0) + 1
                    if seen[weight.name] > 1:
                        total -= elements(weight, graph.sizes)
    return total
