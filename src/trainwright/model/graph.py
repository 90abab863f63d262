"""A model as operators over named dims, grouped in blocks that repeat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

Kind = Literal[
    "matmul", "grouped_matmul", "product", "attention", "norm", "elementwise", "gather", "loss", "permute"
]  # fmt: skip
Region = Literal["sequence", "attention", "ffn", "experts", "shared", "vocab", "tables"]
Element = Literal["activation", "fp32", "mask", "index", "no_gradient"]
NO_GRADIENT = frozenset({"mask", "index", "no_gradient"})  # values that no gradient is computed of

# Bytes per element by role; "activation" is the compute dtype of the run (2 for bf16/fp16, 4 for fp32), and
# "no_gradient" a number of that dtype that is made from indices or constants alone.
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
    A `product` multiplies its two inputs, where a `matmul` multiplies one by weights. An input's dims are
    the reader's names for the producer's, position by position: keys are read over `seq_kv`.
    A `sparse` gather sums `pooling` rows of each table; its backward updates just those rows, in place.
    `frozen` are dims that are never split, because the operator mixes them in a way of its own.
    `serves` names, for inputs and weights of an operator with several results, the results made from each;
    `served_results` reads it.
    A loss with `contracted` dims is the cross entropy of each answer; one without is a number as it is.
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
    window: int | None = None  # attention only: keys that a query meets at most, in tokens
    causal: bool = True  # attention only
    frozen: tuple[str, ...] = ()
    sparse: bool = False  # gathers only
    serves: tuple[tuple[str, tuple[str, ...]], ...] = ()
    share: float | None = None  # losses only: what its mean counts; None: all answers of all losses alike
    smoothing: float = 0.0  # losses only: the probability that is spread over all classes


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A run of operators that repeats: a layer, the embedding, the head.

    `outputs` are pairs of a name and the tensor that goes on under it to the next block; without them, the
    last op's output goes on as "stream".
    """

    name: str
    ops: tuple[Op, ...]
    outputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """`count` equal blocks after one another; its `sizes` go before those of the graph."""

    block: Block
    count: int
    seq: int | None = None  # tokens per sample where they are not the run's: an encoder, an image
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A whole model: segments in order, and the size of every dim but `batch` and `seq`.

    `top_k` tokens-per-expert routing and the number of experts are sizes too (`top_k`, `experts`).
    With recycling a step runs `passes` forwards, each on the result of the one before; only the last has
    a backward. `inputs` are names of what it is given, where they are not the usual ones.
    """

    name: str
    segments: tuple[Segment, ...]
    sizes: Mapping[str, int]
    tied: frozenset[str] = frozenset()  # names of weights that appear twice but are stored once
    passes: int = 1
    inputs: frozenset[str] = frozenset()


def served_results(op: Op, name: str) -> tuple[Tensor, ...]:
    """The results that an input or weight goes into.

    Where the operator does not say, a weight named like a result (`q.weight`, `q.out`) serves that result,
    and any other tensor serves them all.
    """
    results = (op.output, *op.extra_outputs)
    stated = dict(op.serves).get(name)
    if stated is not None:
        return tuple(each for each in results if each.name in stated)
    stem = name.rpartition(".")[0]
    return tuple(each for each in results if each.name.removesuffix(".out") == stem) or results


def trained_weights(op: Op) -> tuple[Tensor, ...]:
    """The weights of an operator that are trained; others are frozen, or no loss depends on them."""
    return tuple(weight for weight in op.weights if weight.element not in NO_GRADIENT)


def is_layer(block: Block) -> bool:
    """Whether a block is one of those that pipeline stages divide: all but the ends of a stack."""
    return not block.name.endswith(("embedding", "head", "end"))


def segment_sizes(graph: Graph, segment: Segment) -> Mapping[str, int]:
    """The size of every dim in `segment` that does not depend on the batch or the sequence."""
    return {**graph.sizes, **segment.sizes} if segment.sizes else graph.sizes


def dim_sizes(graph: Graph, segment: Segment, batch: int, seq: int) -> dict[str, int]:
    """The size of every dim in `segment`, the symbolic ones included.

    Those are `batch`, and the tokens of a sample: `seq`, `seq_kv` (as keys), `seq_third` (beside both) and
    `seq_enc` (of the encoder).
    """
    own = segment.seq or seq
    lengths = {"batch": batch, "seq": own, "seq_kv": own, "seq_third": own}
    return {"seq_enc": seq, **segment_sizes(graph, segment), **lengths}


def elements(tensor: Tensor, sizes: Mapping[str, int]) -> int:
    """The number of elements of a tensor."""
    return prod(sizes[dim] for dim in tensor.dims)


def segment_parameters(graph: Graph, segment: Segment) -> int:
    """Parameters that all blocks of a segment own (tied weights are counted where they stand)."""
    sizes = segment_sizes(graph, segment)
    return segment.count * sum(elements(weight, sizes) for op in segment.block.ops for weight in op.weights)


def parameters(graph: Graph) -> int:
    """Stored parameters of the model: a tied weight counts once."""
    total = sum(segment_parameters(graph, segment) for segment in graph.segments)
    seen: set[str] = set()
    for segment in graph.segments:
        for weight in (weight for op in segment.block.ops for weight in op.weights):
            if weight.name in seen:
                total -= elements(weight, segment_sizes(graph, segment))
            elif weight.name in graph.tied:
                seen.add(weight.name)
    return total


def query_dim(op: Op) -> str:
    """The dim of an attention's queries: it stands in the queries where the keys' dim stands in the keys."""
    queries, keys = op.inputs[:2]
    return queries.dims[keys.dims.index(op.contracted[0])]


def query_groups(op: Op) -> tuple[str, ...]:
    """The dims over which an attention repeats: its result's, without the queries and the width of a head."""
    queries = query_dim(op)
    return tuple(dim for dim in op.output.dims[:-1] if dim != queries)
