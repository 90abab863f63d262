"""The parts that both streams of an Evoformer are made of: gated attention on one axis, transitions, sums."""

from dataclasses import dataclass

from trainwright.model.architecture import Architecture
from trainwright.model.graph import Op, Tensor
from trainwright.model.operators import elementwise, matmul, norm, projections, tensor

MSA = ("batch", "rows", "seq", "hidden")  # sequences of the alignment by residues
PAIR = ("batch", "seq", "seq_kv", "pair_hidden")  # residues by residues


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Which index of a stream attends: what the keys and the bias are called where the queries read them."""

    keys: tuple[str, ...]  # all dims of the stream but the last
    contracted: str  # the one of `keys` that is summed over
    heads: tuple[str, str]
    bias: tuple[str, ...] = ()  # dims of the bias without its heads


def renamed(source: Tensor, *dims: str) -> Tensor:
    """The tensor as a reader with its own names for its dims sees it."""
    return tensor(source.name, *dims, element=source.element)


def attention_branch(name: str, source: Tensor, axis: Axis, bias: Tensor | None) -> tuple[Op, ...]:
    """Attention along one axis of `source`, each head's result times a gate; the last op gives the branch."""
    lead = source.dims[:-1]
    q, k, v, gate = (tensor(f"{name}.{part}", *lead, *axis.heads) for part in ("q", "k", "v", "gate"))
    heads = projections(f"{name}.qkv", "attention", source, (q, k, v, gate), biased=(gate,))
    mixed = tensor(f"{name}.core.out", *lead, *axis.heads)
    statistics = tensor(f"{name}.core.statistics", *lead, axis.heads[0], element="fp32")
    read = tuple(renamed(each, *axis.keys, *axis.heads) for each in (k, v))
    biases = () if bias is None else (bias,)
    core = Op(
        name=f"{name}.core",
        kind="attention",
        region="attention",
        inputs=(q, *read, *(renamed(each, *axis.bias, axis.heads[0]) for each in biases)),
        output=mixed,
        contracted=(axis.contracted,),
        saved=(q, k, v, *biases, mixed, statistics),
        causal=False,
    )
    gated = elementwise(
        f"{name}.gate", "attention", (mixed, gate), tensor(f"{name}.gate.out", *mixed.dims), saves=True
    )
    output = tensor(f"{name}.output.out", *source.dims)
    weight = (*axis.heads, source.dims[-1])
    return (heads, core, gated, matmul(f"{name}.output", "attention", gated.output, output, weight, True))


def bias_op(name: str, source: Tensor, heads: str) -> Op:
    """One number per pair of residues and head, which attention adds to its scores."""
    output = tensor(f"{name}.bias.out", *source.dims[:-1], heads)
    return matmul(f"{name}.bias", "attention", source, output, (source.dims[-1], heads), False)


def transition_ops(architecture: Architecture, name: str, stream: Tensor, width: str) -> tuple[Op, ...]:
    """Norm, up, ReLU, down and the sum with the stream, at every position by itself."""
    before = norm(architecture, f"{name}.norm", stream)
    hidden, lead = stream.dims[-1], stream.dims[:-1]
    wide = tensor(f"{name}.up.out", *lead, width)
    up = matmul(f"{name}.up", "ffn", before.output, wide, (hidden, width), True)
    active = tensor(f"{name}.activation.out", *lead, width)
    relu = elementwise(f"{name}.activation", "ffn", (wide,), active, saves=True)
    narrow = tensor(f"{name}.down.out", *stream.dims)
    down = matmul(f"{name}.down", "ffn", active, narrow, (width, hidden), True)
    return (before, up, relu, down, sum_op(f"{name}.residual", stream, narrow))


def sum_op(name: str, stream: Tensor, *branches: Tensor) -> Op:
    """The stream plus its branches."""
    return elementwise(name, "sequence", (stream, *branches), tensor(name, *stream.dims), saves=False)
