"""A captured graph with fewer kinds of nodes: constants computed, what does nothing left out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, Node

from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.inplace import write_out
from trainwright.runtime.tracing.nodes import arguments, call_with, item_index, op_name, operand, shape

aten = torch.ops.aten

_CHECKS = {"_assert_tensor_metadata", "_assert_async", "sym_constrain_range", "_assert_scalar"}
_COPIES = {"contiguous", "clone", "alias", "lift_fresh_copy", "lift_fresh"}
_FILLED = {"new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like"}
_RANDOM = {"dropout", "rand", "randn", "rand_like", "randn_like", "bernoulli", "native_dropout", "randint"}


def simplify(captured: Capture) -> Capture:
    """The same computation in fewer kinds of nodes."""
    graph = captured.graph
    write_out(captured)
    for node in list(graph.nodes):
        if node.op == "call_function":
            _leave_out(graph, node)
    constants = _fold(captured, graph)
    for node in list(graph.nodes):
        replacement = _same_as(node)
        if replacement is not None:
            node.replace_all_uses_with(replacement)
            graph.erase_node(node)
    graph.eliminate_dead_code()
    alive = set(graph.nodes)
    return replace(
        captured,
        parameters={node: names for node, names in captured.parameters.items() if node in alive},
        constants={node: value for node, value in constants.items() if node in alive and node.users},
    )


def _leave_out(graph: Graph, node: Node) -> None:
    """Leave out checks, and let views copy where they must."""
    if op_name(node) in _CHECKS:
        graph.erase_node(node)
    elif op_name(node) in ("view", "_unsafe_view", "view_as", "reshape_as"):
        node.target, node.args, node.kwargs = aten.reshape.default, (node.args[0], list(shape(node))), {}
    elif op_name(node) == "expand_as":
        node.target, node.args = aten.expand.default, (node.args[0], list(shape(node)))
    elif op_name(node) == "getitem" and op_name(operand(node, 0)) == "broadcast_tensors":
        source = arguments(operand(node, 0))["tensors"][item_index(node)]
        node.target, node.args = aten.expand.default, (source, list(shape(node)))


def _fold(captured: Capture, graph: Graph) -> dict[Node, torch.Tensor]:
    """Constants that other nodes read, computed from buffers and from nothing."""
    values: dict[Node, Any] = dict(captured.constants)
    for node in list(graph.nodes):
        if node.op != "call_function" or op_name(node) in _RANDOM:
            continue
        if op_name(node) in _FILLED and not isinstance(arguments(node).get("fill_value", 0), Node):
            values[node] = _filled(node)
        elif all(each in values for each in node.all_input_nodes):
            values[node] = call_with(node, values.__getitem__)
    found: dict[Node, torch.Tensor] = {}
    for node, value in values.items():
        if isinstance(value, torch.Tensor) and any(user not in values for user in node.users):
            found |= _placeholder(graph, node, value)
    return found


def _filled(node: Node) -> torch.Tensor:
    """The tensor of a node that takes nothing but a shape from what it reads."""
    like = node.meta["val"]
    value = arguments(node)["fill_value"] if "full" in op_name(node) else "ones" in op_name(node)
    return torch.full(shape(node), value, dtype=like.dtype)


def _placeholder(graph: Graph, node: Node, value: torch.Tensor) -> dict[Node, torch.Tensor]:
    """A constant in a placeholder, once where it is the same along an axis, and repeated from there."""
    kept = value
    for axis in range(value.dim()):
        first = kept.narrow(axis, 0, 1)
        if kept.shape[axis] > 1 and torch.equal(first.expand_as(kept), kept):
            kept = first
    with graph.inserting_before(node):
        constant = graph.placeholder(f"constant_{node.name}")
        constant.meta["val"] = kept
    source = constant
    if kept.shape != value.shape:
        with graph.inserting_after(node):
            source = graph.call_function(aten.expand.default, (constant, list(value.shape)))
            source.meta |= {"val": value, "nn_module_stack": node.meta.get("nn_module_stack")}
    node.replace_all_uses_with(source, delete_user_cb=lambda user: user is not source)
    return {constant: kept.contiguous()}


def _same_as(node: Node) -> Node | None:
    """The node that another only repeats."""
    if node.op != "call_function":
        return None
    test = _IDENTITIES.get(op_name(node))
    source = node.args[0] if node.args else None
    return source if test is not None and isinstance(source, Node) and test(node, source) else None


def _keeps_shape(node: Node, source: Node) -> bool:
    return shape(node) == shape(source)


def _keeps_dtype(node: Node, source: Node) -> bool:
    return bool(node.meta["val"].dtype == source.meta["val"].dtype)


def _keeps_all(node: Node, source: Node) -> bool:
    given = arguments(node)
    return given["p"] == 0.0 or not given["train"]


_IDENTITIES: Mapping[str, Callable[[Node, Node], bool]] = {
    **dict.fromkeys(_COPIES, lambda node, source: True),
    **dict.fromkeys(
        ("view", "reshape", "flatten", "unflatten", "slice", "expand", "_unsafe_view"), _keeps_shape
    ),
    "to": _keeps_dtype,
    "dropout": _keeps_all,
}
