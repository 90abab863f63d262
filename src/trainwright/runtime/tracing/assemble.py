"""The parts of a traced module put together: blocks, segments, kernels, weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch.fx import Node

from trainwright.model.graph import Block, Graph, Op, Segment
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.blocks import Spot
from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.experts import is_mixture, mixture_count, mixture_kernels, mixture_weights
from trainwright.runtime.tracing.factors import all_leaves, leaves
from trainwright.runtime.tracing.groups import is_entropy, original, source_of
from trainwright.runtime.tracing.kernels import build_kernel, build_targets
from trainwright.runtime.tracing.learned import LEARNED
from trainwright.runtime.tracing.local import Causal, find_causal
from trainwright.runtime.tracing.names import Names
from trainwright.runtime.tracing.nodes import arguments, op_name, shape
from trainwright.runtime.tracing.operators import Writer
from trainwright.runtime.tracing.outputs import build_output
from trainwright.runtime.tracing.replay import Replay
from trainwright.runtime.tracing.sample_sizes import grows_with_samples
from trainwright.runtime.tracing.separate import STORED
from trainwright.runtime.tracing.streams import Streams, build_streams
from trainwright.runtime.tracing.traced import Given, Inputs, Output, Part, Traced, Weight
from trainwright.runtime.work import Kernel

_LENGTHS = ("batch", "seq", "seq_kv", "seq_third")


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What has been found out about a module."""

    captured: Capture
    reading: Reading
    drafts: Sequence[Draft]
    names: Names
    batch: int

    @cached_property
    def spots(self) -> list[Spot]:
        """The blocks in order."""
        return sorted({draft.group.spot for draft in self.drafts})

    @cached_property
    def block_names(self) -> dict[Spot, str]:
        """The name of each block's place in the model: "embedding", "layer.3"."""
        layers = [spot for spot in self.spots if spot.path]
        return {spot: f"layer.{layers.index(spot)}" if spot.path else spot.name for spot in self.spots}

    @cached_property
    def causal(self) -> dict[Node, Causal | None]:
        """The mask of each attention, if it is causal."""
        found: dict[Node, Causal | None] = {}
        for draft in self.drafts:
            for node in draft.group.nodes:
                if op_name(node) == "scaled_dot_product_attention":
                    mask = arguments(node)["attn_mask"]
                    value = self.captured.constants.get(original(mask)) if isinstance(mask, Node) else None
                    found[node] = find_causal(self.reading, node, value)
        return found

    @cached_property
    def tied(self) -> dict[tuple[object, ...], str]:
        """Weights that more than one operator reads, and their names."""
        readers: dict[tuple[object, ...], dict[Draft, Node]] = {}
        for draft in self.drafts:
            for node in draft.weights:
                readers.setdefault(self.identity(node), {})[draft] = node
        several = [list(found.values()) for found in readers.values() if len(found) > 1]
        return {self.identity(first): self._full_name(first) for first, *_ in several}

    def identity(self, node: Node) -> tuple[object, ...]:
        """What is equal for nodes that are the same weight."""
        return (self.captured.parameters[original(node)], original(node).meta.get(STORED, ()))

    @cached_property
    def weight_names(self) -> dict[Node, str]:
        """The name of each weight in the graph: its parameter's within the block."""
        found: dict[Node, str] = {}
        for draft in self.drafts:
            for node in draft.weights:
                found[node] = self._weight_name(node, draft.group.spot)
            if draft.group.kind == "matmul":
                found |= self._bias_names(draft, found)
        return found

    def _weight_name(self, node: Node, spot: Spot) -> str:
        if self.identity(node) in self.tied:
            return self.tied[self.identity(node)]
        name = self._full_name(node)
        return name.removeprefix(f"{spot.path}.") if spot.path else name

    def _full_name(self, node: Node) -> str:
        """The name of a parameter, with the numbers of the part that a weight is."""
        name = self.captured.parameters[original(node)][0]
        parts: tuple[Part, ...] = original(node).meta.get(STORED, ())
        stem, dot, leaf = name.rpartition(".")
        return "".join([stem, dot, *(f"{part.number}." for part in parts), leaf])

    def _bias_names(self, draft: Draft, names: Mapping[Node, str]) -> dict[Node, str]:
        """Names for biases after those of their weights, but for tied ones."""
        found: dict[Node, str] = {}
        for node in draft.group.nodes:
            pair = _weight_and_bias(node)
            read = [source_of(each) for each in pair if isinstance(each, Node)]
            if (
                len(read) == 2
                and all(each in names for each in read)
                and self.identity(read[1]) not in self.tied
            ):
                found[read[1]] = names[read[0]].removesuffix(".weight") + ".bias"
        return found


def _weight_and_bias(node: Node) -> tuple[object, object]:
    """The two among a product's arguments, where its operation has both."""
    given = arguments(node)
    if op_name(node) == "linear":
        return given["weight"], given["bias"]
    return (given["mat2"], given["self"]) if op_name(node) == "addmm" else (None, None)


def assemble(parts: Parts) -> Traced:
    """The traced module."""
    writer = Writer(
        reading=parts.reading, names=parts.names, weight_names=parts.weight_names, causal=parts.causal,
        shares=parts.captured.terms,
    )  # fmt: skip
    streams = build_streams(parts.drafts, parts.captured.inputs.values())
    ops = {
        draft: writer.write(draft, streams.read_as(draft, parts.captured.inputs)) for draft in parts.drafts
    }
    named = {
        draft: {f"{parts.block_names[draft.group.spot]}/{op.name}": op for op in written}
        for draft, written in ops.items()
    }
    seq = _sequence(parts)
    kernels = dict(_kernels(parts, named))
    return Traced(
        graph=Graph(
            name=parts.captured.name,
            segments=_segments(parts, ops, streams, writer.values, seq),
            sizes=_common_sizes(parts),
            tied=frozenset(parts.tied.values()),
            inputs=frozenset(parts.captured.inputs.values()),
        ),
        kernels=kernels,
        weights=dict(_weights(parts)),
        inputs=dict(_inputs(parts)),
        targets=dict(_targets(parts, named)),
        outputs=dict(_outputs(parts, writer.values)),
        notes=tuple(_notes(parts, named)),
        batch=parts.batch,
        any_batch=not any(isinstance(each, Replay) and each.samples for each in kernels.values())
        and all(map(partial(_follows_samples, parts), parts.drafts)),
        seq=seq,
    )


_Ops = Mapping[Draft, tuple[Op, ...]]
_Named = Mapping[Draft, Mapping[str, Op]]  # the operators of each draft, by their places


def _segments(
    parts: Parts, ops: _Ops, streams: Streams, values: Mapping[Node, str], seq: int
) -> tuple[Segment, ...]:
    """The blocks in order, equal layers after one another together; those with tied weights stay apart."""
    common, tied = _common_sizes(parts), set(parts.tied.values())
    found: list[Segment] = []
    for spot in parts.spots:
        inside = tuple(op for draft, written in ops.items() if draft.group.spot == spot for op in written)
        sizes = _sizes(parts, spot)
        routed = any(op.region == "experts" for op in inside)
        segment = Segment(
            block=Block(
                name=spot.name + (".moe" if routed else ""),
                ops=inside,
                outputs=streams.handed_on(spot, inside, values),
            ),
            count=1,
            seq=None if sizes.get("seq", seq) == seq else sizes["seq"],
            sizes={name: size for name, size in sizes.items() if common.get(name, size) != size},
        )
        shares = any(weight.name in tied for op in inside for weight in op.weights)
        if found and spot.path and not shares and replace(found[-1], count=1) == segment:
            found[-1] = replace(found[-1], count=found[-1].count + 1)
        else:
            found.append(segment)
    return tuple(found)


def _sizes(parts: Parts, spot: Spot) -> dict[str, int]:
    sizes = {name: factor.size for factor, name in parts.names.blocks[spot].items()}
    for draft in parts.drafts:
        if draft.group.spot == spot and is_mixture(draft):
            sizes["top_k"] = mixture_count(draft)
    return sizes


def _common_sizes(parts: Parts) -> dict[str, int]:
    """The sizes of all dims but those that a run sets; of a dim with several, the first block's."""
    found: dict[str, int] = {}
    for spot in parts.spots:
        for name, size in _sizes(parts, spot).items():
            if name not in _LENGTHS:
                found.setdefault(name, size)
    return found


def _sequence(parts: Parts) -> int:
    """The tokens of a sample: those of the inputs, or of the first block that has any."""
    return next((sizes["seq"] for spot in parts.spots if "seq" in (sizes := _sizes(parts, spot))), 1)


def _kernels(parts: Parts, named: _Named) -> Iterator[tuple[str, Kernel]]:
    for draft, ops in named.items():
        if is_mixture(draft):
            yield from mixture_kernels(ops)
            continue
        dims, constants = parts.names.blocks[draft.group.spot], parts.captured.constants
        (name,) = ops
        kernel = build_kernel(
            parts.reading, draft, dims, parts.weight_names, constants, parts.causal, parts.batch
        )
        yield name, kernel


def _targets(parts: Parts, named: _Named) -> Iterator[tuple[str, Callable[[Inputs], torch.Tensor]]]:
    for draft, ops in named.items():
        if is_entropy(draft.group):
            (name,) = ops
            yield name, build_targets(parts.reading, draft, parts.captured.inputs, parts.captured.constants)


def _weights(parts: Parts) -> Iterator[tuple[str, Weight]]:
    for draft in parts.drafts:
        listed = [(parts.weight_names[node], node, ()) for node in draft.weights]
        for name, node, order in mixture_weights(draft) if is_mixture(draft) else listed:
            tied = parts.identity(node) in parts.tied
            weight = Weight(
                names=parts.captured.parameters[original(node)],
                rank=len(shape(original(node))),
                shape=tuple(factor.size for factor in draft.order[node]),
                parts=original(node).meta.get(STORED, ()),
                order=order,
                trained=bool(original(node).meta[LEARNED]),
            )
            yield name if tied else f"{parts.block_names[draft.group.spot]}/{name}", weight


def _follows_samples(parts: Parts, draft: Draft) -> bool:
    """Whether the shapes of all that an operator writes follow the number of samples."""
    inputs = [parts.reading.axes[node][0] for node in parts.captured.inputs]
    samples = {factor for axis in inputs for factor in leaves(axis)}
    return all(grows_with_samples(parts.reading, node, samples) for node in draft.outputs)


def _inputs(parts: Parts) -> Iterator[tuple[str, Given]]:
    read = {original(node) for draft in parts.drafts for node in draft.inputs}
    for node, name in parts.captured.inputs.items():
        if node in read:
            first, *rest = all_leaves(parts.reading.axes[node])
            samples = -1 if first.size == parts.batch else first.size
            yield f"input/{name}", Given(name=name, shape=(samples, *(each.size for each in rest)))


def _outputs(parts: Parts, values: Mapping[Node, str]) -> Iterator[tuple[str, Output]]:
    drafts = {node: draft for draft in parts.drafts for node in (*draft.outputs, *draft.group.nodes)}

    def value_of(node: Node) -> str:
        return f"{parts.block_names[drafts[node].group.spot]}/{values[node]}"

    objective = parts.captured.objective
    if objective is not None:
        terms = tuple((value_of(node), share) for node, share in parts.captured.terms.items())
        yield objective.name, Output(value="", terms=terms, constant=objective.constant)
    for name, node in parts.captured.outputs.items():
        made = original(node)
        if made in drafts and made in values:
            yield name, build_output(parts.reading, drafts[made], node, value_of(made))


def _notes(parts: Parts, named: _Named) -> Iterator[str]:
    for draft, ops in named.items():
        name = next(iter(ops))
        for node in draft.group.nodes:
            if node in parts.reading.notes:
                yield f"{name}: {op_name(node)} is kept whole, because {parts.reading.notes[node]}"
