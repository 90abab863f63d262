"""Which values have gradients: those that are computed from a parameter, by operations that pass one on."""

import torch
from torch.fx import Node

from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.nodes import op_name

LEARNED = "learned"  # where a node's meta data says whether its values have gradients


def mark_learned(captured: Capture) -> None:
    """Write into every node whether a gradient flows through it to a parameter.

    Of a frozen parameter none is computed, nor of one that no loss depends on.
    PyTorch computes none of whole numbers, nor of what is made from them alone: the counts of tokens by
    expert, say, though they may be kept as floats. A node that is cut into operators must keep to that.
    """
    trained = _trained(captured)
    for node in captured.graph.nodes:
        if node.op == "placeholder":
            node.meta[LEARNED] = node in trained
        else:
            node.meta[LEARNED] = op_name(node) != "detach" and any(map(_passes, node.all_input_nodes))


def _passes(node: Node) -> bool:
    """Whether a gradient can flow into what a node makes; of several results, into any."""
    return bool(node.meta[LEARNED]) and _is_differentiable(node)


def _is_differentiable(node: Node) -> bool:
    made = node.meta.get("val")
    listed = made if isinstance(made, tuple | list) else [made]
    dtypes = [each.dtype for each in listed if isinstance(each, torch.Tensor)]
    return any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)


def _trained(captured: Capture) -> set[Node]:
    """The parameters that are not frozen, and that a loss depends on if there is one."""
    listed = {node for node, names in captured.parameters.items() if names[0] not in captured.frozen}
    if captured.objective is None:
        return listed
    reached: set[Node] = set()
    waiting = list(captured.terms)
    while waiting:
        node = waiting.pop()
        if node not in reached and _is_differentiable(node) and op_name(node) != "detach":
            reached.add(node)
            waiting += node.all_input_nodes
    return listed & reached
