"""Operators of the graph, from their drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch.fx import Node

from trainwright.model.graph import Element, Op, Region, Tensor
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.experts import is_mixture, mixture_ops, mixture_weights
from trainwright.runtime.tracing.factors import all_leaves
from trainwright.runtime.tracing.groups import is_entropy, original, sources_within
from trainwright.runtime.tracing.learned import LEARNED
from trainwright.runtime.tracing.local import Causal
from trainwright.runtime.tracing.names import Names
from trainwright.runtime.tracing.nodes import arguments, module_path, op_name

_LINEAR = {
    "add", "sub", "neg", "cat", "slice", "select", "getitem", "split", "chunk", "split_with_sizes", "unbind",
    "to", "dropout", "arrange", "sum", "mean", "detach", "rsub",
}  # fmt: skip
_SCALED = {"mul", "div"}  # linear in one factor where the other is constant


@dataclass(slots=True, kw_only=True)
class Writer:
    """Operators as they get their names, block by block."""

    reading: Reading
    names: Names
    weight_names: Mapping[Node, str]
    causal: Mapping[Node, Causal | None]
    shares: Mapping[Node, float]  # of the terms of the loss
    values: dict[Node, str] = field(default_factory=dict)  # the tensor that each node's result is
    _taken: dict[tuple[object, str], int] = field(default_factory=dict)

    def write(self, draft: Draft, read_as: Mapping[Node, str]) -> tuple[Op, ...]:
        """The operator of a draft, or those of a mixture; `read_as` names values from other blocks."""
        inputs = tuple(self._tensor(draft, node, self._read_name(node, read_as)) for node in draft.inputs)
        if is_mixture(draft):
            ops = tuple(map(partial(_with_elements, draft), mixture_ops(draft, inputs[0])))
            self.values[draft.outputs[0]] = ops[-1].output.name
            return ops
        return (self._write_one(draft, inputs),)

    def _write_one(self, draft: Draft, inputs: tuple[Tensor, ...]) -> Op:
        weights = tuple(self._tensor(draft, node, self.weight_names[node]) for node in _main_first(draft))
        read = [(node, each.name) for node, each in zip(draft.inputs, inputs, strict=True)]
        read += [(node, self.weight_names[node]) for node in draft.weights]
        name = self._op_name(draft, weights)
        outputs = self._outputs(draft, name)
        spot = draft.group.spot
        return Op(
            name=name,
            kind=draft.group.kind,
            region=self._region(draft),
            inputs=inputs,
            output=outputs[0],
            extra_outputs=outputs[1:],
            weights=weights,
            contracted=self.names.of(spot, draft.contracted),
            saved=self._saved(draft, name, inputs, outputs),
            **self._mask(draft),  # type: ignore[arg-type]
            **self._loss(draft),  # type: ignore[arg-type]
            frozen=self._frozen(draft),
            serves=self._serves(draft, read, outputs),
        )

    def _serves(
        self, draft: Draft, read: Sequence[tuple[Node, str]], outputs: Sequence[Tensor]
    ) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The results that each input and weight goes into, where there are several."""
        if len(outputs) < 2:
            return ()
        found: dict[str, dict[str, None]] = {name: {} for _, name in read}
        for made, output in zip(draft.outputs, outputs, strict=True):
            origins = sources_within(draft.group, made)
            for node, name in read:
                if node in origins:
                    found[name][output.name] = None
        return tuple((name, tuple(results)) for name, results in found.items())

    def _read_name(self, node: Node, read_as: Mapping[Node, str]) -> str:
        made = original(node)
        return read_as[made] if made in read_as else self.values[made]

    def _tensor(self, draft: Draft, node: Node, name: str) -> Tensor:
        dims = self.names.of(draft.group.spot, draft.order[node])
        return Tensor(name=name, dims=dims, element=_element(node))

    def _outputs(self, draft: Draft, name: str) -> tuple[Tensor, ...]:
        found = []
        nodes = draft.outputs or draft.group.nodes[-1:]
        for number, node in enumerate(nodes):
            self.values[node] = f"{name}.out" if number == 0 else f"{name}.out{number + 1}"
            found.append(self._tensor(draft, node, self.values[node]))
        if draft.group.kind == "loss":
            found = [replace(each, element="fp32") for each in found]
        return tuple(found)

    def _dims(self, draft: Draft) -> set[str]:
        return set(self.names.of(draft.group.spot, tuple(draft.factors)))

    def _region(self, draft: Draft) -> Region:
        dims = self._dims(draft)
        if draft.group.kind == "attention" or dims & {"heads", "kv_heads"}:
            return "attention"
        if dims & {"vocab", "classes"}:
            return "vocab"
        return "ffn" if "ffn" in dims else "sequence"

    def _op_name(self, draft: Draft, weights: Sequence[Tensor]) -> str:
        made = {dim for node in draft.outputs for dim in self.names.of(draft.group.spot, draft.order[node])}
        summed = set(self.names.of(draft.group.spot, draft.contracted))
        stem, counted = _stem(draft, self._region(draft), made, summed, linear=is_linear(draft))
        key = (draft.group.spot, stem)
        self._taken[key] = number = self._taken.get(key, 0) + 1
        if counted:
            return f"{stem}{number}"
        return stem if number == 1 else f"{stem}_{number}"

    def _saved(
        self, draft: Draft, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """What the backward reads again."""
        spot, kind = draft.group.spot, draft.group.kind
        if kind == "loss" and not is_entropy(draft.group):
            return ()
        if kind == "loss":
            return (Tensor(name=f"{name}.softmax", dims=inputs[0].dims, element="fp32"),)
        if kind == "attention":
            node = draft.group.nodes[0]
            rows = all_leaves(self.reading.axes[node][:-1])
            statistics = Tensor(name=f"{name}.statistics", dims=self.names.of(spot, rows), element="fp32")
            return (
                *(
                    self._as_made(draft, each, tensor)
                    for each, tensor in zip(draft.inputs, inputs, strict=True)
                ),
                outputs[0],
                statistics,
            )
        if kind == "elementwise" and is_linear(draft):
            return tuple(self._masks(draft, name))
        return inputs

    def _as_made(self, draft: Draft, node: Node, tensor: Tensor) -> Tensor:
        """An input under the names of its maker, where this block has names for them."""
        made, known = original(node), self.names.blocks[draft.group.spot]
        own, read = all_leaves(self.reading.axes[made]), all_leaves(self.reading.axes[node])
        factors = [own[read.index(factor)] for factor in draft.order[node]]
        if any(factor not in known for factor in factors):
            return tensor
        return Tensor(name=tensor.name, dims=tuple(known[each] for each in factors), element=tensor.element)

    def _masks(self, draft: Draft, name: str) -> list[Tensor]:
        dropped = [node for node in draft.group.nodes if op_name(node) == "dropout"]
        return [
            Tensor(
                name=f"{name}.mask{number}",
                dims=self.names.of(draft.group.spot, all_leaves(self.reading.axes[node])),
                element="mask",
            )
            for number, node in enumerate(dropped)
        ]

    def _mask(self, draft: Draft) -> dict[str, object]:
        if draft.group.kind != "attention":
            return {}
        causal = self.causal[draft.group.nodes[0]]
        return {"causal": causal is not None, "window": causal.window if causal else None}

    def _loss(self, draft: Draft) -> dict[str, object]:
        if draft.group.kind != "loss":
            return {}
        (node,) = draft.group.nodes
        smoothing = float(arguments(node)["label_smoothing"]) if is_entropy(draft.group) else 0.0
        return {"share": self.shares.get(node, 0.0), "smoothing": smoothing}

    def _frozen(self, draft: Draft) -> tuple[str, ...]:
        known = self.names.blocks[draft.group.spot]
        if draft.group.kind in ("matmul", "product", "attention", "gather", "loss"):
            return ()
        return tuple(sorted(known[each] for each in draft.group.frozen if each in draft.factors))


def _with_elements(draft: Draft, op: Op) -> Op:
    """An operator of a mixture whose frozen weights are such."""
    elements = {name: _element(node) for name, node, _ in mixture_weights(draft)}
    return replace(op, weights=tuple(replace(each, element=elements[each.name]) for each in op.weights))


def is_linear(draft: Draft) -> bool:
    """Whether an operator only adds and scales by constants, so that its backward reads nothing again."""
    return all(_is_linear(node) for node in draft.group.nodes)


def _is_linear(node: Node) -> bool:
    name = op_name(node)
    if name in _LINEAR:
        return True
    varying = [each for each in node.all_input_nodes if original(each).meta.get("role") != "constant"]
    first = node.args[0] if node.args else None
    return name in _SCALED and len(varying) <= 1 and (name == "mul" or first in varying)


def _element(node: Node) -> Element:
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:
        return "mask"
    if not (dtype.is_floating_point or dtype.is_complex):
        return "index"
    return "activation" if original(node).meta.get(LEARNED, True) else "no_gradient"


def _main_first(draft: Draft) -> list[Node]:
    """The weights of a product before its biases, in the order of its results."""
    if draft.group.kind != "matmul":
        return list(draft.weights)
    summed = set(draft.contracted)
    return sorted(draft.weights, key=lambda node: not summed <= set(draft.order[node]))


def _stem(
    draft: Draft, region: Region, made: set[str], summed: set[str], *, linear: bool
) -> tuple[str, bool]:
    """What an operator is called, and whether it is counted from 1."""
    kind, spot = draft.group.kind, draft.group.spot
    if kind == "attention":
        return "attention.core", False
    if kind == "loss":
        return "loss", False
    if kind == "gather":
        return "embedding", False
    if kind == "norm":
        if region == "attention":
            return "attention.qk_norm", False
        return ("norm", True) if spot.path else ("final_norm" if spot.number else "embedding_norm", False)
    if kind == "matmul":
        return _product_stem(draft, region, made, summed), False
    return _soft_stem(draft, region, linear=linear)


def _product_stem(draft: Draft, region: Region, made: set[str], summed: set[str]) -> str:
    if region == "attention":
        return "attention.output" if "heads" in summed else "attention.qkv"
    if region == "ffn":
        return "ffn.down" if "ffn" in summed else "ffn.up"
    if region == "vocab" and made & {"vocab", "classes"}:
        return "logits"
    return _module_stem(draft)


def _soft_stem(draft: Draft, region: Region, *, linear: bool) -> tuple[str, bool]:
    if draft.group.kind == "elementwise":
        if region == "attention":
            return ("attention.rope" if linear else "attention.mix"), False
        if region == "ffn":
            return "ffn.activation", False
        if linear and len(draft.inputs) > 1 and any(op_name(node) == "add" for node in draft.group.nodes):
            return "residual", True
    return _module_stem(draft), False


def _module_stem(draft: Draft) -> str:
    """The name of the module that an operator is in, within its block."""
    node = draft.group.nodes[0]
    path = module_path(node)
    if draft.group.spot.path and path.startswith(draft.group.spot.path):
        path = path[len(draft.group.spot.path) + 1 :]
    return path or op_name(node)
