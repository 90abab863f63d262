"""Tracing: any PyTorch module as a graph of operators that plans can split."""

from typing import Any

import torch
from torch import nn
from torch.fx import Node

from trainwright.errors import BadInput
from trainwright.runtime.tracing.assemble import Parts, assemble
from trainwright.runtime.tracing.averaging import check_average
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.blocks import find_layers, place_nodes
from trainwright.runtime.tracing.capture import Capture, capture
from trainwright.runtime.tracing.draft import Draft, arrange_inputs, draft_all
from trainwright.runtime.tracing.groups import needed
from trainwright.runtime.tracing.inplace import changes_buffer
from trainwright.runtime.tracing.learned import mark_learned
from trainwright.runtime.tracing.merge import merge
from trainwright.runtime.tracing.mixture import recognise_mixtures
from trainwright.runtime.tracing.names import name_factors
from trainwright.runtime.tracing.nodes import arguments, op_name, shape
from trainwright.runtime.tracing.objective import find_objective
from trainwright.runtime.tracing.rewrite import rewrite
from trainwright.runtime.tracing.rules_recurrences import RECURRENCES
from trainwright.runtime.tracing.sample_sizes import mark_sized
from trainwright.runtime.tracing.separate import separate
from trainwright.runtime.tracing.simplify import simplify
from trainwright.runtime.tracing.traced import Traced


def trace(module: nn.Module, example_inputs: Any) -> Traced:
    """A module as a graph with kernels, from what it does with the example inputs.

    Inputs are a tensor, a tuple (by position) or a mapping (by name); the first axis of each is samples, at
    least two of them. The module is traced as it stands: with dropout if it is in training mode, and in
    the dtype of its parameters.
    """
    captured = simplify(capture(module, example_inputs))
    mark_sized(module, example_inputs, captured)
    captured = find_objective(captured)
    check_average(module, example_inputs, captured)
    captured = rewrite(recognise_mixtures(captured))
    batch = _check(captured)
    captured, reading = separate(captured)
    _mark(captured)
    mark_learned(captured)
    drafts = _drafts(module, captured, reading)
    names = name_factors(reading, drafts, list(captured.inputs))
    return assemble(Parts(captured=captured, reading=reading, drafts=drafts, names=names, batch=batch))


def _drafts(module: nn.Module, captured: Capture, reading: Reading) -> list[Draft]:
    """The operators of a module, with copies between them where the order of dims must change."""
    outputs, layers = [*captured.outputs.values(), *captured.terms], find_layers(module)
    while True:
        nodes = needed(list(captured.graph.nodes), outputs)
        drafts = draft_all(reading, merge(reading, nodes, place_nodes(nodes, layers)), outputs)
        if not arrange_inputs(reading, drafts):
            return drafts


def _mark(captured: Capture) -> None:
    """Write into placeholders what they stand for."""
    for role, nodes in (
        ("weight", captured.parameters), ("input", captured.inputs), ("constant", captured.constants)
    ):  # fmt: skip
        for node in nodes:
            node.meta["role"] = role


def _check(captured: Capture) -> int:
    """The number of samples in the example, if it and all operations are such as can be split."""
    sizes = {text: shape(node)[:1] for node, text in captured.inputs.items()}
    samples = next(iter(sizes.values()), ())
    if not samples or samples[0] < 2 or any(size != samples for size in sizes.values()):
        given = ", ".join(f"{text}: {size[0] if size else 'none'}" for text, size in sizes.items())
        raise BadInput(
            f"example inputs of {captured.name}: samples", given or "none",
            "all inputs have as many, and at least 2",
            "give two or more samples, along the first axis of every input",
        )  # fmt: skip
    for node in captured.graph.nodes:
        if op_name(node) == "batch_norm" and _keeps_statistics(node):
            raise changes_buffer(captured.name, op_name(node))
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            _check_random(captured.name, node)
    return samples[0]


def _keeps_statistics(node: Node) -> bool:
    given = arguments(node)
    return bool(given["training"] and given["running_mean"] is not None)


def _check_random(name: str, node: Node) -> None:
    """Only dropout draws the same numbers under every plan; inside a recurrence it does not."""
    if op_name(node) in RECURRENCES:
        given = arguments(node)
        if not (given["dropout"] and given["train"]):
            return
        raise BadInput(
            f"module {name}", op_name(node), f"drops {given['dropout']:g} of its values between its layers",
            "use recurrences of one layer each, with nn.Dropout between them",
        )  # fmt: skip
    if op_name(node) not in ("dropout", "scaled_dot_product_attention"):
        raise BadInput(
            f"module {name}",
            op_name(node),
            "draws random numbers",
            "use nn.Dropout, or give them as an input",
        )
