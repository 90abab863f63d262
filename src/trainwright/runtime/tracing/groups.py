"""What becomes one operator of the graph, and what it reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from trainwright.model.graph import Kind
from trainwright.runtime.tracing.axes import Reading, is_view, rename
from trainwright.runtime.tracing.blocks import Spot
from trainwright.runtime.tracing.factors import Axis, Factor, all_leaves, leaves
from trainwright.runtime.tracing.nodes import op_name, operand

PRODUCTS = {"linear", "addmm", "mm", "bmm", "matmul"}
_ANCHORS: Mapping[str, Kind] = {
    "scaled_dot_product_attention": "attention",
    "embedding": "gather",
    "cross_entropy_loss": "loss",
    "loss_term": "loss",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "mixture": "permute",
}


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """Nodes that become one operator, in order; views between them are not listed."""

    kind: Kind
    nodes: list[Node]
    spot: Spot
    frozen: set[Factor] = field(default_factory=set)


def is_entropy(group: Group) -> bool:
    """Whether an operator is a cross entropy that parts of a vocabulary make up."""
    return group.kind == "loss" and op_name(group.nodes[0]) == "cross_entropy_loss"


def source_of(node: Node) -> Node:
    """What a node's tensor is made from: itself, or the node that it is a view of."""
    while is_view(node):
        node = node.all_input_nodes[0]
    return node


def sources(node: Node) -> Iterator[Node]:
    """What a node reads, seen through views: placeholders, renamed tensors, other nodes."""
    for each in node.all_input_nodes:
        if op_name(node) == "cross_entropy_loss" and each is not node.args[0]:
            continue
        yield source_of(each)


def sources_within(group: Group, node: Node) -> set[Node]:
    """What a group reads from outside to make one of its nodes, seen through views."""
    inside, found, waiting = set(group.nodes), set[Node](), [node]
    seen = {node}
    while waiting:
        for each in sources(waiting.pop()):
            if each not in inside:
                found.add(each)
            elif each not in seen:
                seen.add(each)
                waiting.append(each)
    return found


def original(node: Node) -> Node:
    """The node that makes a tensor, whatever it is called where it is read."""
    while node.target is rename or is_view(node):
        node = node.all_input_nodes[0]
    return node


def needed(nodes: Sequence[Node], outputs: Iterable[Node]) -> list[Node]:
    """Nodes that outputs and losses come from, without those that only make the right answers."""
    found: set[Node] = set()
    waiting = list(outputs)
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        loss = op_name(node) == "cross_entropy_loss"
        waiting += [operand(node, 0)] if loss else node.all_input_nodes
    return [node for node in nodes if node in found]


def kind_of(reading: Reading, node: Node) -> Kind:
    """What a node is by itself; a product that is not of one of the usual forms is kept whole inside."""
    name = op_name(node)
    if node in reading.notes:
        return "elementwise"
    if name not in PRODUCTS:
        return _ANCHORS.get(name, "elementwise")
    left, right = operands(node)
    roles = [original(each).meta.get("role", "value") for each in (left, right)]
    values = [role in ("value", "input") for role in roles]
    flat = set(all_leaves(reading.axes[right])) <= {
        *leaves(reading.axes[node][-1]),
        *contracted(reading, node),
    }
    if not contracted(reading, node):
        return "elementwise"  # over an axis of size 1, nothing is summed
    if values[0] and roles[1] == "weight" and flat:
        return "matmul"
    return "product" if all(values) and name != "addmm" else "elementwise"


def operands(node: Node) -> tuple[Node, Node]:
    """The two factors of a product."""
    first = 1 if op_name(node) == "addmm" else 0
    return operand(node, first), operand(node, first + 1)


def contracted(reading: Reading, node: Node) -> Axis:
    """What a node sums over, in parts that add up or that a softmax or a loss brings together."""
    name = op_name(node)
    if name in PRODUCTS:
        return leaves(reading.axes[operands(node)[0]][-1])
    if name == "scaled_dot_product_attention":
        return leaves(reading.axes[operand(node, 1)][-2])
    if name == "cross_entropy_loss":
        return leaves(class_axis(reading, node))
    return ()


def class_axis(reading: Reading, node: Node) -> Axis:
    """The axis of a loss's logits that the classes lie along."""
    axes = reading.axes[operand(node, 0)]
    return axes[1 if len(axes) > 1 else 0]
