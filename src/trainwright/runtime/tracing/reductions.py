"""Losses that are one number, written as a loss for each answer or element and a reduction of those."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node

from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.nodes import arguments, op_name, shape

aten = torch.ops.aten
_NONE, _MEAN = 0, 1  # PyTorch's numbers for reductions
_ELEMENTWISE = {
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div",
    "binary_cross_entropy_with_logits", "soft_margin_loss", "poisson_nll_loss",
}  # fmt: skip
_LIKELIHOODS = {"nll_loss", "nll_loss2d", "nll_loss_nd"}


def cross_entropy_each(
    logits: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor | None, ignored: int, smoothing: float
) -> torch.Tensor:
    """The cross entropy of each answer; classes are along axis 1, as PyTorch has them."""
    return F.cross_entropy(
        logits, targets, weight, ignore_index=ignored, reduction="none", label_smoothing=smoothing
    )


def likelihood_each(
    logarithms: torch.Tensor, targets: torch.Tensor, weight: torch.Tensor | None, ignored: int
) -> torch.Tensor:
    """The negative log-likelihood of each answer."""
    return F.nll_loss(logarithms, targets, weight, ignore_index=ignored, reduction="none")


def answer_counts(
    targets: torch.Tensor, weight: torch.Tensor | None, ignored: int, dtype: torch.dtype
) -> torch.Tensor:
    """What each answer counts in a mean: its class's weight or 1, and 0 if it is ignored."""
    counts = targets != ignored
    if weight is None:
        return counts.to(dtype)
    return (weight[targets * counts] * counts).to(dtype)


def write_reductions(captured: Capture, kept: Sequence[Node] = ()) -> None:
    """Replace losses over all elements, but for those that are `kept`, and reductions to one number."""
    graph = captured.graph
    for node in list(graph.nodes):
        name = op_name(node)
        if node in kept or node.op != "call_function":
            continue
        if name == "cross_entropy_loss" or name in _LIKELIHOODS:
            _write_answers(graph, node)
        elif name in _ELEMENTWISE and arguments(node)["reduction"] != _NONE:
            _write_elements(graph, node)
    for node in list(graph.nodes):
        if op_name(node) in ("mean", "sum") and not shape(node):
            _reduce_samples_last(graph, node)
    graph.eliminate_dead_code()


def _write_elements(graph: Graph, node: Node) -> None:
    given: Mapping[str, Any] = arguments(node) | {"reduction": _NONE}
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    listed = [given[each.name] for each in schema if not each.kwarg_only]
    sizes = torch.broadcast_shapes(*(shape(each) for each in listed[:2]))  # type: ignore[no-untyped-call]
    with graph.inserting_before(node):
        each = _call(graph, node, node.target, tuple(listed), sizes)
        each.kwargs = {each.name: given[each.name] for each in schema if each.kwarg_only}
        total = _reduced(graph, node, each, mean=arguments(node)["reduction"] == _MEAN)
    node.replace_all_uses_with(total)


def _write_answers(graph: Graph, node: Node) -> None:
    """A cross entropy or a likelihood: the weighted mean over the answers that count."""
    given = arguments(node)
    source, targets, weight = given["self"], given["target"], given["weight"]
    ignored = int(given["ignore_index"])
    by_class = not targets.meta["val"].is_floating_point()
    classes = 1 if len(shape(source)) > 1 else 0
    sizes = tuple(size for axis, size in enumerate(shape(source)) if axis != classes)
    with graph.inserting_before(node):
        if op_name(node) == "cross_entropy_loss":
            args: tuple[Any, ...] = (source, targets, weight, ignored, float(given["label_smoothing"]))
            each = _call(graph, node, cross_entropy_each, args, sizes)
        else:
            each = _call(graph, node, likelihood_each, (source, targets, weight, ignored), sizes)
        total = each
        if given["reduction"] == _MEAN and by_class:
            args = (targets, weight, ignored, node.meta["val"].dtype)
            counts = _call(graph, node, answer_counts, args, sizes)
            sums = [_reduced(graph, node, part, mean=False) for part in (each, counts)]
            total = _call(graph, node, aten.div.Tensor, tuple(sums), ())
        elif given["reduction"] != _NONE:
            total = _reduced(graph, node, each, mean=given["reduction"] == _MEAN)
    node.replace_all_uses_with(total)


def _reduced(graph: Graph, like: Node, each: Node, *, mean: bool) -> Node:
    if not shape(each):
        return each
    return _call(graph, like, (aten.mean if mean else aten.sum).default, (each,), ())


def _reduce_samples_last(graph: Graph, node: Node) -> None:
    """Reduce the first axis after all others, so that of each sample one number leaves its device."""
    (source,), given = node.all_input_nodes, arguments(node)
    rank = len(shape(source))
    if rank < 2 or given.get("dtype") is not None:
        return
    target = aten.mean.dim if op_name(node) == "mean" else aten.sum.dim_IntList
    with graph.inserting_before(node):
        rest = _call(graph, node, target, (source, list(range(1, rank))), shape(source)[:1])
        total = _call(graph, node, target, (rest, [0]), ())
    node.replace_all_uses_with(total)


def _call(graph: Graph, like: Node, target: Any, args: tuple[Any, ...], sizes: Sequence[int]) -> Node:
    """A new node that belongs to the module of another, of that one's dtype."""
    made = graph.call_function(target, args)
    value = like.meta["val"].new_empty(sizes)
    made.meta |= {"nn_module_stack": like.meta.get("nn_module_stack"), "val": value}
    return made
