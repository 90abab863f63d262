"""Reading the nodes of a captured graph."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node, map_arg


def op_name(node: Node) -> str:
    """The operation of a node without its overload: "linear", "view"; of a placeholder "placeholder"."""
    if node.op != "call_function":
        return node.op
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return str(getattr(node.target, "__name__", node.target))
    return str(schema.name).removeprefix("aten::")


def shape(node: Node) -> tuple[int, ...]:
    """The shape of a node's tensor, as traced."""
    return tuple(int(size) for size in node.meta["val"].shape)


def is_tensor(value: Any) -> bool:
    """Whether an argument is a node that gives one tensor."""
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of a node by name, defaults filled in."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return {str(index): value for index, value in enumerate(node.args)}
    found = {each.name: each.default_value for each in schema.arguments if each.has_default_value()}
    found |= {each.name: value for each, value in zip(schema.arguments, node.args, strict=False)}
    return found | dict(node.kwargs)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis % max(rank, 1)


def module_path(node: Node) -> str:
    """The path of the innermost module that a node belongs to; empty for the whole."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()), ("", None))[0] if stack else ""
    return str(path)


def item_index(node: Node) -> int:
    """Which of several results a node takes."""
    found = node.args[1]
    assert isinstance(found, int), f"{node} takes no one result"
    return found


def call_with(node: Node, values: Callable[[Node], Any]) -> Any:
    """What a node's operation makes of the values of the nodes that it reads."""
    args, kwargs = map_arg((node.args, dict(node.kwargs)), values)
    target: Any = node.target
    return target(*args, **kwargs)


def operand(node: Node, place: int) -> Node:
    """The node at a place among the arguments of another."""
    found = node.args[place]
    assert isinstance(found, Node), f"{node} has no node at {place}"
    return found
