"""Operations in place written as operations that make a tensor of their own."""

import torch
from torch.fx import Graph, Node

from trainwright.errors import BadInput
from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.nodes import arguments, is_tensor, op_name

aten = torch.ops.aten
_SCATTERS = {"slice": aten.slice_scatter.default, "select": aten.select_scatter.default}
_VIEWS = {
    "view", "reshape", "transpose", "permute", "t", "unsqueeze", "squeeze", "expand", "unflatten", "flatten",
    "narrow", "split", "chunk", "unbind", "getitem", "diagonal", "as_strided", "movedim", "swapaxes",
    "detach",
}  # fmt: skip


def overwrite(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """What is written over a tensor, with the shape and dtype of that one."""
    return new.expand_as(old).to(old.dtype)


def write_out(captured: Capture) -> None:
    """Replace all operations in place."""
    for node in list(captured.graph.nodes):
        name = op_name(node)
        plain = getattr(aten, name.removesuffix("_"), None) if name.endswith("_") else None
        if node.op != "call_function" or name.endswith("__") or plain is None or not is_tensor(node):
            continue
        changed = node.args[0]
        assert isinstance(changed, Node)
        _check_changed(captured, node, changed)
        node.target = getattr(plain, str(node.target._overloadname))
        if name == "copy_":
            node.target, node.args = overwrite, node.args[:2]
        _read_after(captured.graph, node, changed)


def _check_changed(captured: Capture, node: Node, changed: Node) -> None:
    """Refuse to change what a module keeps from one run to the next."""
    while changed.all_input_nodes and op_name(changed) in _VIEWS | set(_SCATTERS) | {"alias"}:
        changed = changed.all_input_nodes[0]
    if changed in captured.constants or changed in captured.parameters:
        raise changes_buffer(captured.name, op_name(node).removesuffix("_"))


def changes_buffer(module: str, operation: str) -> BadInput:
    """What a user is told whose module keeps statistics of its runs."""
    return BadInput(
        f"module {module}", operation, "changes a buffer each time that it runs",
        "use layers without running statistics, such as LayerNorm, or freeze them with eval()",
    )  # fmt: skip


def _read_after(graph: Graph, node: Node, changed: Node) -> None:
    """Let all that comes later read what a node has changed, and what that is a part of."""
    _swap(changed, node, after=node)
    new = node
    while op_name(changed) in _SCATTERS:
        whole, given = changed.all_input_nodes[0], arguments(changed)
        place = (
            (given["index"],)
            if op_name(changed) == "select"
            else (given["start"], given["end"], given["step"])
        )
        with graph.inserting_after(new):
            scattered = graph.call_function(_SCATTERS[op_name(changed)], (whole, new, given["dim"], *place))
        scattered.meta |= whole.meta
        _swap(whole, scattered, after=scattered)
        changed, new = whole, scattered
    parent = changed.all_input_nodes[0] if changed.all_input_nodes else None
    shared = parent is not None and op_name(changed) in _VIEWS and any(user > node for user in parent.users)
    if shared:
        raise BadInput(
            "operation", op_name(node), "changes in place a view of a tensor that is read later",
            "write it without the underscore",
        )  # fmt: skip


def _swap(old: Node, new: Node, after: Node) -> None:
    old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new and user > after)
