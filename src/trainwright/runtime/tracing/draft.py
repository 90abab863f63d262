"""What each operator reads, owns and writes, before its dims and tensors have names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

from trainwright.errors import BadInput
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.factors import Axis, Factor, all_leaves, leaves
from trainwright.runtime.tracing.groups import (
    Group,
    class_axis,
    contracted,
    is_entropy,
    operands,
    original,
    source_of,
    sources,
)
from trainwright.runtime.tracing.nodes import op_name, operand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """An operator: nodes for tensors, factors for dims.

    `inputs` and `weights` are nodes as they are read, perhaps renamed. `order` is the order in which the dims
    of each input, weight and output are stored.
    """

    group: Group
    inputs: tuple[Node, ...]
    weights: tuple[Node, ...]
    outputs: tuple[Node, ...]
    contracted: Axis
    order: Mapping[Node, Axis]

    @property
    def factors(self) -> frozenset[Factor]:
        """All dims that its tensors have."""
        return frozenset(
            factor for node in (*self.inputs, *self.weights, *self.outputs) for factor in self.order[node]
        )


def arrange(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor; in a graph it stands where a product wants the dims in another order."""
    return tensor.clone()


def arrange_inputs(reading: Reading, drafts: Sequence[Draft]) -> bool:
    """Put copies before operators that read dims in another order than they are stored; whether any was."""
    crossed = [
        (node, read)
        for draft in drafts
        for node in draft.group.nodes
        for read, order in _orders(reading, draft.group, node)
        if draft.order[source_of(read)] != order
    ]
    for node, read in crossed:
        with reading.graph.inserting_before(node):
            copy = reading.graph.call_function(arrange, (read,))
        copy.meta |= read.meta
        reading.axes[copy] = reading.axes[read]
        node.replace_input_with(read, copy)
    return bool(crossed)


def _orders(reading: Reading, group: Group, node: Node) -> Iterator[tuple[Node, Axis]]:
    """What a node must read in one order, and that order: products sum over the last dims, as losses do."""
    if group.kind == "matmul":
        left, _ = operands(node)
        yield left, all_leaves(reading.axes[left])
    elif is_entropy(group):
        logits, classes = operand(node, 0), class_axis(reading, node)
        others = [axis for axis in reading.axes[logits] if axis is not classes]
        yield logits, all_leaves((*others, classes))


def draft_all(reading: Reading, groups: Sequence[Group], outputs: Iterable[Node]) -> list[Draft]:
    """The operators of all groups in order."""
    returned = {original(each) for each in outputs}
    owner = {node: each for each in groups for node in each.nodes}
    read = {
        original(each) for each_group in groups for node in each_group.nodes for each in sources(node)
        if owner.get(original(each)) is not each_group
    }  # fmt: skip
    wanted = _wanted(reading, groups)
    order: dict[Node, Axis] = {}
    found: list[Draft] = []
    for each in groups:
        found.append(_draft(reading, each, read | returned, order, wanted))
        order |= found[-1].order
    return found


def _draft(
    reading: Reading, group: Group, kept: set[Node], known: Mapping[Node, Axis], wanted: Mapping[Node, Axis]
) -> Draft:
    inside = set(group.nodes)
    read = dict.fromkeys(each for node in group.nodes for each in sources(node) if each not in inside)
    outside = [each for each in read if _role(each) != "constant"]
    weights = tuple(each for each in outside if _role(each) == "weight")
    inputs = tuple(each for each in outside if _role(each) != "weight")
    order = {each: _as_read(reading, each, known) for each in inputs}
    order |= {each: all_leaves(reading.axes[each]) for each in weights}
    outputs = tuple(node for node in group.nodes if node in kept and node in reading.axes)
    for node in outputs:
        order[node] = _order_of(reading, group, node, order, wanted)
    summed = [each for node in group.nodes for each in contracted(reading, node)]
    return Draft(
        group=group, inputs=inputs, weights=weights, outputs=outputs, order=order,
        contracted=tuple(dict.fromkeys(summed)) if group.kind != "elementwise" else (),
    )  # fmt: skip


def _role(node: Node) -> str:
    """Whether a placeholder is a weight, an input or a constant; of other nodes "value"."""
    made = original(node)
    return str(made.meta.get("role", "value")) if made.op == "placeholder" else "value"


def _as_read(reading: Reading, node: Node, known: Mapping[Node, Axis]) -> Axis:
    """The stored order of a value under the names by which it is read."""
    made = original(node)
    own, read = all_leaves(reading.axes[made]), all_leaves(reading.axes[node])
    stored = known.get(made, own)
    return tuple(read[own.index(factor)] for factor in stored)


def _wanted(reading: Reading, groups: Sequence[Group]) -> dict[Node, Axis]:
    """The order in which values are read whose makers may order them as they like."""
    found: dict[Node, Axis] = {}
    for group in groups:
        for node in group.nodes:
            for read, order in _orders(reading, group, node):
                found.setdefault(source_of(read), order)
    return found


def _order_of(
    reading: Reading, group: Group, node: Node, order: Mapping[Node, Axis], wanted: Mapping[Node, Axis]
) -> Axis:
    """The order of a result: as it is wanted, or like that of the first input with the same dims."""
    own = all_leaves(reading.axes[node])
    if is_entropy(group):
        return _answers(reading, node, order)
    if group.kind == "matmul":
        return own
    if node in wanted:
        return wanted[node]
    for given in order.values():
        if set(given) == set(own):
            return given
    if group.kind == "attention":
        query, value = operand(node, 0), operand(node, 2)
        wide, narrow = (leaves(reading.axes[each][-1]) for each in (query, value))
        first = order[source_of(query)]
        if first[-len(wide) :] == wide and set(own) == {*first[: -len(wide)], *narrow}:
            return (*first[: -len(wide)], *narrow)
    return own


def _answers(reading: Reading, node: Node, order: Mapping[Node, Axis]) -> Axis:
    """The dims of a loss's answers: those of its logits but for the classes."""
    classes = leaves(class_axis(reading, node))
    if len(classes) != 1:
        raise BadInput(
            "loss", op_name(node), "its classes lie along several dims", "let a linear layer make the logits"
        )
    return tuple(each for each in order[source_of(operand(node, 0))] if each not in classes)
