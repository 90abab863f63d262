"""The data flow of a whole model: every op of every block, with full names of what it reads and writes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainwright.model.graph import Block, Graph, Op, is_layer

# What a model is given: named `input/NAME`, or `input/encoder.NAME` where it has two stacks. A part of a
# model is given the streams that the rest of it would write.
_GIVEN = frozenset(
    {"tokens", "pixels", "coordinates", "msa_features", "target_features", "previous_row", "previous_pair",
     "stream", "pair", "encoded"}
)  # fmt: skip
# Tensors that no op writes, because kernels make them on the way: what they are made from.
_MADE_FROM = {"probabilities": "router.out", "routes": "router.out"}
_CLASS_STATE = "class_state"  # the first token of the hidden state so far


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One op at one place of the model.

    Values are named `BLOCK/TENSOR`: "layer.2/residual2". `inputs` stand in the order of `op.inputs`,
    `outputs` in that of `op.output` and `op.extra_outputs`.
    """

    name: str  # BLOCK/OP
    block: str  # embedding, layer.0, encoder.3, encoder.end, decoder.embedding, head
    layer: int | None  # the block's number in its stack; None at the ends
    segment: int  # index into `graph.segments`, whose sizes hold here
    op: Op
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One block at one place of the model."""

    name: str
    layer: int | None
    segment: int
    block: Block


def places(graph: Graph) -> Iterator[Place]:
    """The blocks of a model in order; layers are counted over all segments of their stack."""
    counts: dict[str, int] = {}
    for index, segment in enumerate(graph.segments):
        block = segment.block
        if not is_layer(block):
            yield Place(name=block.name, layer=None, segment=index, block=block)
            continue
        stack = block.name.partition(".")[0]
        start = counts.get(stack, 0)
        counts[stack] = start + segment.count
        for layer in range(start, start + segment.count):
            yield Place(name=f"{stack}.{layer}", layer=layer, segment=index, block=block)


def wire(graph: Graph) -> tuple[Instance, ...]:
    """All ops of a model in order, each input with the name of the value that it is."""
    reads = {id(each.block): _reads(each.block) for each in graph.segments}
    streams: dict[str, str] = {}  # what crosses from block to block: the full name of each stream's value
    instances: list[Instance] = []
    for place in places(graph):
        if place.name == "decoder.embedding" and streams:
            streams["encoded"] = streams["stream"]
        instances += _instances(place, reads[id(place.block)], streams, graph.inputs)
        streams |= {name: f"{place.name}/{tensor}" for name, tensor in _continued(place.block)}
    return tuple(instances)


def recycled(instances: Sequence[Instance]) -> dict[str, str]:
    """What a pass of a model that recycles is given by the pass before: inputs by name, and those values."""
    found: dict[str, str] = {}
    for each in instances:
        for name in each.outputs:
            if name.endswith("/single.row"):
                found["input/previous_row"] = name
        for tensor, name in zip(each.op.inputs, each.inputs, strict=True):
            if tensor.name == "pair":
                found["input/previous_pair"] = name  # the last one stands
    return found


_Read = tuple[bool, str]  # whether this block writes it, and its name


def _instances(
    place: Place, reads: Sequence[tuple[_Read, ...]], streams: Mapping[str, str], given: frozenset[str]
) -> Iterator[Instance]:
    prefix = f"{place.name}/"
    for op, sources in zip(place.block.ops, reads, strict=True):
        yield Instance(
            name=prefix + op.name,
            block=place.name,
            layer=place.layer,
            segment=place.segment,
            op=op,
            inputs=tuple(
                [
                    prefix + name if own else streams.get(name) or _given(name, place, given)
                    for own, name in sources
                ]
            ),
            outputs=(prefix + op.output.name, *[prefix + tensor.name for tensor in op.extra_outputs]),
        )


def _reads(block: Block) -> tuple[tuple[_Read, ...], ...]:
    """For each op of a block, where its inputs come from: an earlier op of the block, or outside."""
    written: dict[str, None] = {}
    reads = []
    for op in block.ops:
        reads.append(tuple(_read(tensor.name, written) for tensor in op.inputs))
        written |= dict.fromkeys((op.output.name, *(tensor.name for tensor in op.extra_outputs)))
    return tuple(reads)


def _read(name: str, written: dict[str, None]) -> _Read:
    if name == _CLASS_STATE and name not in written:
        return (True, next(reversed(written))) if written else (False, "stream")
    name = name if name in written else _MADE_FROM.get(name, name)
    return name in written, name


def _given(name: str, place: Place, given: frozenset[str]) -> str:
    if name in given:
        return f"input/{name}"
    assert name in _GIVEN, f"{place.name} reads {name}, which nothing writes"
    stack = place.name.partition(".")[0]
    return f"input/{stack}.{name}" if stack in ("encoder", "decoder") else f"input/{name}"


def _continued(block: Block) -> tuple[tuple[str, str], ...]:
    """The streams that a block hands on: those it states, or its last op's output."""
    return block.outputs or (("stream", block.ops[-1].output.name),)
