"""What of a captured graph depends on the number of samples, found by capturing it for twice as many."""

from collections.abc import Collection
from math import prod
from typing import Any

import torch
from torch import nn
from torch.fx import Node, map_arg
from torch.utils import _pytree as pytree

from trainwright.errors import BadInput
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.capture import Capture, capture, example_arguments
from trainwright.runtime.tracing.factors import Factor, leaves
from trainwright.runtime.tracing.nodes import is_tensor, shape
from trainwright.runtime.tracing.simplify import simplify

SIZED = "sized"  # where a node's meta data says that what it does depends on the number of samples
GROWTH = "growth"  # where it has, of each axis, how much longer it is for twice as many samples


def mark_sized(module: nn.Module, example_inputs: Any, captured: Capture) -> None:
    """Write into every node whether its arguments or its values depend on the number of samples.

    A size that the module reads from a shape is a plain number in the graph: `x.sum() / x.shape[0]` divides
    by the samples of the example. Arguments that only arrange a tensor are found again from its axes.
    """
    other = _doubled(module, example_inputs)
    nodes, others = list(captured.graph.nodes), list(other.graph.nodes) if other else []
    alike = [(node.op, node.target) for node in nodes if node.op == "call_function"] == [
        (node.op, node.target) for node in others if node.op == "call_function"
    ]
    if not alike or len(nodes) != len(others) or other is None:
        for node in nodes:
            node.meta[SIZED] = True
        return
    places = {node: at for at, node in enumerate(nodes)}
    doubled = {node: at for at, node in enumerate(others)}
    for node, twin in zip(nodes, others, strict=True):
        node.meta[SIZED] = not (
            _written(node, places) == _written(twin, doubled)
            and _same(captured.constants.get(node), other.constants.get(twin))
        )
        if is_tensor(node) and is_tensor(twin):
            pairs = zip(shape(node), shape(twin), strict=False)
            node.meta[GROWTH] = tuple(many / max(few, 1) for few, many in pairs)


def grows_with_samples(reading: Reading, node: Node, samples: Collection[Factor]) -> bool:
    """Whether the shape of a tensor follows the number of samples as its axes say."""
    growth = node.meta.get(GROWTH)
    if growth is None:
        return True
    expected = [prod(2.0 if each in samples else 1.0 for each in leaves(axis)) for axis in reading.axes[node]]
    return len(growth) == len(expected) and all(a == b for a, b in zip(growth, expected, strict=True))


def _doubled(module: nn.Module, example_inputs: Any) -> Capture | None:
    """The graph for twice the samples; none if the module takes only as many as in the example."""
    args, kwargs = example_arguments(example_inputs)
    tensors = (each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor))
    if any(each.dim() == 0 for each in tensors):
        return None
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda each: torch.cat([each, each]), (args, kwargs))
    try:
        return simplify(capture(module, kwargs or args))
    except BadInput:
        return None


def _written(node: Node, places: dict[Node, int]) -> Any:
    """The arguments of a node, with the numbers of the nodes among them."""
    if node.op != "call_function":
        return ()
    return map_arg((node.args, dict(node.kwargs)), lambda each: ("node", places[each]))


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and one.dtype == other.dtype and bool(torch.equal(one, other))
