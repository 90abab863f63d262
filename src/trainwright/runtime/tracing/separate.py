"""Fused products taken apart: one product for each part of a result that is only read in parts.

A fused projection makes queries, keys and values at once, and a slice, a split or an index along one factor
of what it makes takes them apart again. Each becomes a product with its own part of the weight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.fx import Graph, Node

from trainwright.runtime.tracing.axes import WHOLE, Reading, is_view, rename
from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.factors import Factor, leaves
from trainwright.runtime.tracing.nodes import arguments, axis_of, item_index, op_name, shape
from trainwright.runtime.tracing.rules import rule_of
from trainwright.runtime.tracing.traced import Part

aten = torch.ops.aten
STORED = "stored"  # where a node's meta data says which part of a parameter it is, part of part
_SEVERAL = {"split", "chunk", "split_with_sizes", "unsafe_split", "unbind"}
_ONE = {"select", "slice"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What a slicing node takes: from `start` to `stop`; `drops` is whether the axis goes with it."""

    node: Node  # the node that gives the piece as a tensor
    start: int
    stop: int
    drops: bool


def separate(captured: Capture) -> tuple[Capture, Reading]:
    """The same computation without fused products, and what is known about its axes."""
    parameters = dict(captured.parameters)
    for node, names in captured.parameters.items():
        parameters |= dict.fromkeys(_own_parts(captured.graph, node), names)
    captured = _alive(captured, parameters)
    while True:
        reading = Reading(graph=captured.graph)
        reading.read_all(rule_of)
        parameters = dict(captured.parameters)
        changed = False
        for node in list(captured.graph.nodes):
            if op_name(node) in ("linear", "addmm"):
                found = _take_apart(reading, node, parameters)
                parameters |= found
                changed = changed or bool(found)
        if not changed:
            return captured, reading
        _unname(captured)
        captured = _alive(captured, parameters)


def _alive(captured: Capture, parameters: Mapping[Node, tuple[str, ...]]) -> Capture:
    """The computation with those of the parameters that are read."""
    captured.graph.eliminate_dead_code()
    read = {node for node in captured.graph.nodes if node.users}
    return replace(captured, parameters={n: names for n, names in parameters.items() if n in read})


def _own_parts(graph: Graph, node: Node) -> list[Node]:
    """Weights for the parts of a parameter, if all that reads it cuts it along one axis without overlap."""
    slicers = list(node.users)
    plain = all(
        op_name(each) in _SEVERAL | {"slice"} - {"unbind"} and _in_steps_of_one(each) for each in slicers
    )
    axes = {axis_of(arguments(each).get("dim", 0), len(shape(node))) for each in slicers} if plain else set()
    if len(axes) != 1:
        return []
    pieces = [piece for each in slicers for piece in _pieces(each)]
    spans = sorted({(piece.start, piece.stop) for piece in pieces})
    (axis,) = axes
    ends = [0, *(stop for _, stop in spans)]
    if [start for start, _ in spans] != ends[:-1] or ends[-1] != shape(node)[axis]:
        return []
    return [_own_part(graph, node, piece, axis, spans.index((piece.start, piece.stop))) for piece in pieces]


def _own_part(graph: Graph, node: Node, piece: _Piece, axis: int, number: int) -> Node:
    with graph.inserting_before(node):
        part = graph.placeholder(f"{node.name}_{number}")
    part.meta["val"] = piece.node.meta["val"]
    part.meta[STORED] = (
        Part(view=shape(node), axis=axis, start=piece.start, stop=piece.stop, number=number),
    )
    piece.node.replace_all_uses_with(part)
    return part


def _unname(captured: Capture) -> None:
    """Leave out what a reading has put into the graph, for the next one."""
    for node in list(captured.graph.nodes):
        node.meta.pop(WHOLE, None)
        if node.target is rename:
            node.replace_all_uses_with(node.args[0])
            captured.graph.erase_node(node)


def _take_apart(
    reading: Reading, node: Node, parameters: Mapping[Node, tuple[str, ...]]
) -> dict[Node, tuple[str, ...]]:
    """Products for the parts of a fused one; the parts of parameters that they read."""
    weights = [each for each in node.all_input_nodes if each in parameters]
    slicers = _slicers(node)
    if not slicers or not weights:
        return {}
    made = leaves(reading.axes[node][-1])
    along = {_sliced_factor(reading, each) for each in slicers}
    factor = next(iter(along))
    if len(along) > 1 or factor is None or factor not in made or factor in leaves(reading.rejoined):
        return {}
    found: dict[Node, tuple[str, ...]] = {}
    numbers: dict[tuple[int, int], int] = {}
    for slicer in slicers:
        for piece in _pieces(slicer):
            number = numbers.setdefault((piece.start, piece.stop), len(numbers))
            parts = {each: _part(reading, each, factor, piece, number) for each in weights}
            found |= {part: parameters[each] for each, part in parts.items()}
            _replace(reading, node, slicer, piece, parts, factor)
    return found


def _slicers(node: Node) -> list[Node]:
    """The nodes that slice a product's result, if nothing else reads it; else none."""
    found: list[Node] = []
    for user in node.users:
        if is_view(user) and op_name(user) != "expand":
            below = _slicers(user)
        elif op_name(user) in _SEVERAL | _ONE and _in_steps_of_one(user):
            below = [user]
        else:
            below = []
        if not below:
            return []
        found += below
    return found


def _in_steps_of_one(node: Node) -> bool:
    return bool(arguments(node).get("step", 1) == 1)


def _sliced_factor(reading: Reading, node: Node) -> Factor | None:
    source = node.all_input_nodes[0]
    axes = reading.axes[source]
    axis = leaves(axes[axis_of(arguments(node).get("dim", 0), len(axes))])
    return axis[0] if len(axis) == 1 else None


def _pieces(node: Node) -> list[_Piece]:
    given, size = arguments(node), shape(node.all_input_nodes[0])
    axis = axis_of(given.get("dim", 0), len(size))
    if op_name(node) == "select":
        start = given["index"] % size[axis]
        return [_Piece(node=node, start=start, stop=start + 1, drops=True)]
    if op_name(node) == "slice":
        start = min(_from_front(given.get("start") or 0, size[axis]), size[axis])
        return [_Piece(node=node, start=start, stop=start + shape(node)[axis], drops=False)]
    starts = [0]
    drops = op_name(node) == "unbind"
    for value in node.meta["val"]:
        starts.append(starts[-1] + (1 if drops else int(value.shape[axis])))
    return [
        _Piece(node=user, start=starts[item_index(user)], stop=starts[item_index(user) + 1], drops=drops)
        for user in list(node.users)
    ]


def _from_front(place: int, size: int) -> int:
    return place + size if place < 0 else place


def _part(reading: Reading, weight: Node, factor: Factor, piece: _Piece, number: int) -> Node:
    """The placeholder of a weight's part, before the weight's own."""
    axes = reading.axes[weight]
    place = next(place for place, axis in enumerate(axes) if factor in leaves(axis))
    inner = [each.size for each in leaves(axes[place])]
    offset = leaves(axes[place]).index(factor)
    size = shape(weight)
    view = (*size[:place], *inner, *size[place + 1 :])
    inner[offset] = piece.stop - piece.start
    with reading.graph.inserting_before(weight):
        part = reading.graph.placeholder(f"{weight.name}_{number}")
    part.meta["val"] = weight.meta["val"].new_empty((*size[:place], prod(inner), *size[place + 1 :]))
    new = Part(view=view, axis=place + offset, start=piece.start, stop=piece.stop, number=number)
    part.meta[STORED] = (*weight.meta.get(STORED, ()), new)
    return part


def _replace(
    reading: Reading, node: Node, slicer: Node, piece: _Piece, parts: Mapping[Node, Node], factor: Factor
) -> None:
    """Let what reads a piece read a product of its own."""
    path: list[Node] = []
    view = slicer.all_input_nodes[0]
    while view is not node:
        path.insert(0, view)
        view = view.all_input_nodes[0]
    length = piece.stop - piece.start
    with reading.graph.inserting_before(node):
        made = reading.graph.node_copy(node, lambda each: parts.get(each, each))
        made.meta["val"] = _resized(reading, node, factor, length)
        for view in path:
            made = _copied(reading, view, made)
            made.meta["val"] = _resized(reading, view, factor, length)
        if shape(made) != shape(piece.node):
            made = reading.graph.call_function(aten.reshape.default, (made, list(shape(piece.node))))
            made.meta |= piece.node.meta
    piece.node.replace_all_uses_with(made)


def _copied(reading: Reading, view: Node, source: Node) -> Node:
    return reading.graph.node_copy(view, lambda each: source)


def _resized(reading: Reading, node: Node, factor: Factor, length: int) -> Any:
    """A tensor like a node's, with another length of one factor."""
    sizes: Sequence[int] = [
        prod(length if each is factor else each.size for each in leaves(axis)) for axis in reading.axes[node]
    ]
    return node.meta["val"].new_empty(sizes)
