"""The loss that a module is trained on, as a sum of terms: cross entropies, and other numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Node

from trainwright.errors import BadInput
from trainwright.runtime.tracing.capture import Capture, LossTerm, Objective
from trainwright.runtime.tracing.nodes import arguments, op_name, shape
from trainwright.runtime.tracing.reductions import write_reductions
from trainwright.runtime.tracing.sample_sizes import SIZED

_MEAN = 1  # PyTorch's number for that reduction
_ALIKE = {"reshape", "squeeze", "unsqueeze", "flatten"}


def loss_term(value: torch.Tensor) -> torch.Tensor:
    """A number as it is; in a graph it marks a term of the loss, where the backward starts."""
    return value.clone()


def find_objective(captured: Capture) -> Capture:
    """The same computation with the terms of its loss apart.

    A cross entropy that is a plain mean, smoothed or not, stays one node, which plans may split over the
    vocabulary. All other terms are made of usual operations, and end in a node that only marks them.
    """
    name = _loss_name(captured)
    if name is None:
        write_reductions(captured)
        return captured
    sum_ = _Sum(captured)
    sum_.add(captured.outputs[name], 1.0)
    entropies = [node for node in sum_.shares if _is_plain(captured, node)]
    marked = [_marked(captured, node) if node not in entropies else node for node in sum_.shares]
    start = _return_terms(captured, name, marked)
    _copy_for_others(captured, entropies, start)
    write_reductions(captured, entropies)
    shares = enumerate(sum_.shares.values(), start)
    terms = tuple(LossTerm(place=place, share=share) for place, share in shares)
    return replace(captured, objective=Objective(name=name, terms=terms, constant=sum_.constant))


def _loss_name(captured: Capture) -> str | None:
    """The output that is the loss: the one of that name, else the only number."""
    numbers = [
        name
        for name, node in captured.outputs.items()
        if not shape(node) and node.meta["val"].is_floating_point()
    ]
    if len(numbers) > 1 and "loss" not in numbers:
        raise BadInput(
            f"module {captured.name}: outputs", ", ".join(numbers),
            "several of them are one number, and none is named loss",
            'return them in a dict, and name the one to train on "loss"',
        )  # fmt: skip
    return "loss" if "loss" in numbers else next(iter(numbers), None)


@dataclass(slots=True)
class _Sum:
    """A number as a weighted sum of nodes and a constant."""

    captured: Capture
    shares: dict[Node, float]
    constant: float

    def __init__(self, captured: Capture) -> None:
        self.captured, self.shares, self.constant = captured, {}, 0.0

    def add(self, value: Any, share: float) -> None:
        """Add a node or a number so many times, taken apart as far as it is a sum."""
        fixed = self._fixed(value)
        if fixed is not None:
            self.constant += fixed * share
            return
        parts = list(self._parts(value))
        for part, factor in parts:
            self.add(part, factor * share)
        if not parts:
            self.shares[value] = self.shares.get(value, 0.0) + share

    def _fixed(self, value: Any) -> float | None:
        if not isinstance(value, Node):
            return float(value)
        known = self.captured.constants.get(value)
        return float(known) if known is not None and known.numel() == 1 else None

    def _parts(self, node: Node) -> Iterator[tuple[Any, float]]:
        name, given = op_name(node), arguments(node)
        if shape(node) or node.op != "call_function" or node.meta.get(SIZED):
            return
        if name in ("add", "sub"):
            yield given["self"], 1.0
            yield given["other"], given.get("alpha", 1) * (1.0 if name == "add" else -1.0)
        elif name == "neg":
            yield given["self"], -1.0
        elif name == "mul":
            for one, other in (("self", "other"), ("other", "self")):
                fixed = self._fixed(given[one])
                if fixed is not None:
                    yield given[other], fixed
                    return
        elif name == "div" and given.get("rounding_mode") is None:
            fixed = self._fixed(given["other"])
            if fixed is not None:
                yield given["self"], 1.0 / fixed
        elif name in _ALIKE and not shape(node.all_input_nodes[0]):
            yield node.all_input_nodes[0], 1.0


def _is_plain(captured: Capture, node: Node) -> bool:
    """Whether a term is a cross entropy of classes that inputs alone decide, averaged over all that count."""
    if op_name(node) != "cross_entropy_loss":
        return False
    given = arguments(node)
    by_class = not given["target"].meta["val"].is_floating_point()
    return bool(
        by_class
        and given["weight"] is None
        and given["reduction"] == _MEAN
        and _comes_from_inputs(captured, given["target"])
    )


def _comes_from_inputs(captured: Capture, node: Node) -> bool:
    waiting, seen = [node], set()
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.op == "placeholder" and each not in captured.inputs and each not in captured.constants:
            return False
        waiting += each.all_input_nodes
    return True


def _marked(captured: Capture, node: Node) -> Node:
    with captured.graph.inserting_after(node):
        marked: Node = captured.graph.call_function(loss_term, (node,))
    marked.meta |= {"val": node.meta["val"], "nn_module_stack": node.meta.get("nn_module_stack")}
    return marked


def _return_terms(captured: Capture, name: str, terms: Sequence[Node]) -> int:
    """Let the graph return the terms in the place of the loss; where they begin among its results."""
    output = captured.graph.output_node()
    listed = list(output.args[0])  # type: ignore[arg-type]
    listed[captured.places[name]] = None
    output.args = ((*listed, *terms),)
    captured.graph.eliminate_dead_code()
    return len(listed)


def _copy_for_others(captured: Capture, entropies: Sequence[Node], start: int) -> None:
    """Give a copy of a cross entropy to all but the loss that read it."""
    output = captured.graph.output_node()
    listed = list(output.args[0])  # type: ignore[arg-type]
    for node in entropies:
        if set(node.users) == {output} and node not in listed[:start]:
            continue
        with captured.graph.inserting_after(node):
            other = captured.graph.node_copy(node)
        node.replace_all_uses_with(other, delete_user_cb=lambda user: user is not output)
        listed[:start] = [other if each is node else each for each in listed[:start]]
    output.args = (tuple(listed),)
