"""Patterns that modules write in several operations, as the one that is meant."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.nodes import arguments, op_name, operand, shape

aten = torch.ops.aten
# What a weight may go through on its way to a product.
_ARRANGED = {
    "reshape", "permute", "transpose", "t", "slice", "select", "getitem", "split", "chunk", "unbind",
    "split_with_sizes", "unsafe_split",
}  # fmt: skip


def rewrite(captured: Capture) -> Capture:
    """The same computation with shared keys unrepeated, patches as products, and the like."""
    graph = captured.graph
    for node in list(graph.nodes):
        name = op_name(node)
        if name == "scaled_dot_product_attention":
            _share_keys(graph, node)
        elif name in ("conv1d", "conv2d", "conv3d"):
            _patches_as_product(graph, node, captured.parameters)
        elif name == "index":
            _spread(graph, node, captured.constants)
        elif name == "stack":
            _stack_as_join(graph, node)
        elif name in ("linear", "addmm"):
            _add_after(graph, node)
    graph.eliminate_dead_code()
    return captured


def _share_keys(graph: Graph, node: Node) -> None:
    """Give attention the keys and values as they are before each is repeated for its query heads."""
    query, *repeated = node.args[:3]
    found = [_unrepeated(each) for each in repeated if isinstance(each, Node)]
    if None not in found:
        node.args = (query, *found, *node.args[3:])
        node.kwargs = {**node.kwargs, "enable_gqa": True}
    seen: list[Node] = []
    for place, each in enumerate(node.args[:3]):
        assert isinstance(each, Node)
        if each in seen:  # one tensor in two places would get one name for both
            with graph.inserting_before(node):
                other = graph.call_function(aten.reshape.default, (each, list(shape(each))))
            other.meta |= each.meta
            node.args = (*node.args[:place], other, *node.args[place + 1 :])
        seen.append(each)


def _unrepeated(node: Node) -> Node | None:
    """What keys or values are before each of them is repeated, if they are."""
    if op_name(node) == "repeat_interleave" and arguments(node).get("dim") == 1:
        source = node.args[0]
        return source if isinstance(source, Node) else None
    chain = [node]
    for wanted in ("reshape", "expand", "unsqueeze"):
        if op_name(chain[-1]) != wanted or not chain[-1].all_input_nodes:
            return None
        chain.append(chain[-1].all_input_nodes[0])
    *_, lone, source = chain
    return source if len(shape(node)) == 4 and arguments(lone)["dim"] == 2 else None


def _patches_as_product(graph: Graph, node: Node, parameters: Mapping[Node, tuple[str, ...]]) -> None:
    """A convolution whose kernels lie side by side is a product of patches with a matrix."""
    given = arguments(node)
    source, weight, bias = given["input"], given["weight"], given["bias"]
    kernel, image = shape(weight)[2:], shape(source)[2:]
    plain = (
        tuple(given["stride"]) == kernel
        and not any(given["padding"] if not isinstance(given["padding"], str) else (1,))
        and all(each == 1 for each in given["dilation"])
        and given["groups"] == 1
        and weight in parameters
        and all(size % each == 0 for size, each in zip(image, kernel, strict=True))
    )
    if not plain:
        return
    samples, channels, made = shape(source)[0], shape(source)[1], shape(weight)[0]
    places = [size // each for size, each in zip(image, kernel, strict=True)]
    count = len(kernel)
    inner = [each for pair in zip(places, kernel, strict=True) for each in pair]
    order = [0, *range(2, 2 + 2 * count, 2), 1, *range(3, 3 + 2 * count, 2)]
    steps = (
        (aten.reshape.default, [samples, channels, *inner]),
        (aten.permute.default, order),
        (aten.reshape.default, [samples, *places, -1]),
    )
    with graph.inserting_before(node):
        patches = _chain(graph, node, source, steps)
        matrix = _chain(graph, node, weight, ((aten.reshape.default, [made, -1]),))
        product = _call(graph, node, aten.linear.default, (patches, matrix, bias))
        back = _chain(graph, node, product, ((aten.permute.default, [0, count + 1, *range(1, count + 1)]),))
    node.replace_all_uses_with(back)


def _chain(graph: Graph, like: Node, source: Node, steps: tuple[tuple[object, list[int]], ...]) -> Node:
    for target, argument in steps:
        source = _call(graph, like, target, (source, argument))
    return source


def _call(graph: Graph, like: Node, target: Any, args: tuple[Any, ...]) -> Node:
    """A new node that belongs to the module of another."""
    made = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda each: each.meta["val"])
    made.meta |= {"nn_module_stack": like.meta.get("nn_module_stack"), "val": target(*values)}
    return made


def _stack_as_join(graph: Graph, node: Node) -> None:
    """Tensors side by side along a new axis, which each of them is given first."""
    given = arguments(node)
    axis = given["dim"] % len(shape(node))
    with graph.inserting_before(node):
        parts = [_call(graph, node, aten.unsqueeze.default, (each, axis)) for each in given["tensors"]]
        joined = _call(graph, node, aten.cat.default, (parts, axis))
    node.replace_all_uses_with(joined)


def _spread(graph: Graph, node: Node, constants: Mapping[Node, torch.Tensor]) -> None:
    """An index by counts from 0 along an axis each, which only puts every axis of a tensor at a new place."""
    source, indices = operand(node, 0), arguments(node)["indices"]
    size, made = shape(source), shape(node)
    places = [_counted(constants.get(each), count) for each, count in zip(indices, size, strict=False)]
    if None in places or len(places) < len(size) or len(set(places)) < len(places):
        return
    front = [len(made) + place for place in places if place is not None]
    order = sorted(range(len(size)), key=front.__getitem__)
    shaped = [made[place] if place in front else 1 for place in range(len(made))]
    with graph.inserting_before(node):
        spread = _chain(graph, node, source, ((aten.permute.default, order), (aten.reshape.default, shaped)))
    node.replace_all_uses_with(spread)


def _counted(index: torch.Tensor | None, count: int) -> int | None:
    """The axis, from the end, along which an index counts all places from 0; None if it does not."""
    if index is None or not torch.equal(index.flatten(), torch.arange(count)):
        return None
    return next((place - index.dim() for place, size in enumerate(index.shape) if size == count), None)


def _add_after(graph: Graph, node: Node) -> None:
    """Let a product with what is not a weight add its bias in a node of its own."""
    given, linear = arguments(node), op_name(node) == "linear"
    bias, weight = (given["bias"], given["weight"]) if linear else (given["self"], given["mat2"])
    source = weight
    while op_name(source) in _ARRANGED:
        source = source.all_input_nodes[0]
    if bias is None or source.op == "placeholder":
        return
    with graph.inserting_before(node):
        left, target = (given["input"], aten.linear) if linear else (given["mat1"], aten.mm)
        product = _call(graph, node, target.default, (left, weight))
        total = _call(graph, node, aten.add.Tensor, (product, bias))
    node.replace_all_uses_with(total)
