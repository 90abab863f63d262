"""How operations that arrange, cut, join or reduce relate the axes of what they read to what they make."""

from collections.abc import Sequence
from math import prod

from torch.fx import Node

from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.factors import Axes, Axis, all_leaves, leaves
from trainwright.runtime.tracing.nodes import (
    arguments,
    axis_of,
    is_tensor,
    item_index,
    op_name,
    operand,
    shape,
)


def given(reading: Reading, node: Node) -> Axes:
    """Inputs, weights and constants: nothing is known of their axes."""
    return reading.new_axes(node)


def pointwise(reading: Reading, node: Node) -> Axes:
    """Each place by itself; axes are aligned at the end, those of size 1 are repeated."""
    found: list[Axis] = [()] * len(shape(node))
    for source in [each for each in node.all_input_nodes if is_tensor(each)]:
        for axis in range(-len(shape(source)), 0):
            source = reading.fit(node, source, axis, found[axis])
            found[axis] = found[axis] or reading.axes[source][axis]
    return tuple(found)


def regrouped(reading: Reading, node: Node) -> Axes:
    """The same elements in the same order, in another shape."""
    return reading.factors.regroup(reading.axes[node.all_input_nodes[0]], shape(node))


def permuted(reading: Reading, node: Node) -> Axes:
    """The same axes in another order."""
    given, axes = arguments(node), reading.axes[node.all_input_nodes[0]]
    rank, name = len(axes), op_name(node)
    order = list(range(rank))
    if name == "permute":
        order = [axis_of(axis, rank) for axis in given["dims"]]
    elif name in ("t", "numpy_T"):
        order.reverse()
    elif name == "movedim":
        return _moved(node, axes)
    else:
        one, other = (axis_of(given[key], rank) for key in _SWAPPED[name])
        order[one], order[other] = order[other], order[one]
    return tuple(axes[axis] for axis in order)


_SWAPPED = {"transpose": ("dim0", "dim1"), "swapaxes": ("axis0", "axis1")}


def _moved(node: Node, axes: Axes) -> Axes:
    given = arguments(node)
    source, target = given["source"], given["destination"]
    source, target = ([each] if isinstance(each, int) else each for each in (source, target))
    places = dict(
        zip((axis_of(t, len(axes)) for t in target), (axis_of(s, len(axes)) for s in source), strict=True)
    )
    rest = iter(axis for axis in range(len(axes)) if axis not in places.values())
    return tuple(axes[places[at] if at in places else next(rest)] for at in range(len(axes)))


def expanded(reading: Reading, node: Node) -> Axes:
    """Axes of size 1 repeated, which are new axes."""
    axes = reading.axes[node.all_input_nodes[0]]
    own = reading.new_axes(node)
    lead = len(own) - len(axes)
    return tuple(
        axes[place - lead] if place >= lead and axes[place - lead] else axis for place, axis in enumerate(own)
    )


def reduced(reading: Reading, node: Node) -> Axes:
    """Sums, means and the like: the axes that they run over are mixed."""
    axes = reading.axes[node.all_input_nodes[0]]
    given = arguments(node)
    dims = given.get("dim")
    dims = [dims] if isinstance(dims, int) else dims or range(len(axes))
    over = {axis_of(axis, len(axes)) for axis in dims}
    reading.freeze(node, [axes[axis] for axis in over])
    kept = [() if axis in over else each for axis, each in enumerate(axes)]
    if given.get("keepdim"):
        return tuple(kept)
    return tuple(each for axis, each in enumerate(kept) if axis not in over)


def along(reading: Reading, node: Node) -> Axes:
    """Softmax and the like: the result has the same axes, some of them mixed."""
    axes, given = reading.axes[node.all_input_nodes[0]], arguments(node)
    dims = given["dim"] if "dim" in given else given["dims"]
    dims = [dims] if isinstance(dims, int) else dims or range(len(axes))
    reading.freeze(node, [axes[axis_of(axis, len(axes))] for axis in dims])
    return axes


def scattered(reading: Reading, node: Node) -> Axes:
    """A tensor with some places of one axis written over by another, which may lack that axis."""
    axes, part = reading.axes[operand(node, 0)], operand(node, 1)
    axis = axis_of(arguments(node)["dim"], len(axes))
    others = [place for place in range(len(axes)) if place != axis]
    has_axis = len(shape(part)) == len(axes)
    for place, own in zip(others, others if has_axis else range(len(others)), strict=True):
        part = reading.fit(node, part, own, axes[place])
    reading.freeze(node, [axes[axis], *([reading.axes[part][axis]] if has_axis else [])])
    return axes


def padded(reading: Reading, node: Node) -> Axes:
    """The last axes made longer, which are new axes."""
    axes, own = reading.axes[node.all_input_nodes[0]], reading.new_axes(node)
    kept = len(axes) - len(arguments(node)["pad"]) // 2
    reading.freeze(node, (*axes[kept:], *own[kept:]))
    return (*axes[:kept], *own[kept:])


def several_along(reading: Reading, node: Node) -> Axes | tuple[Axes, ...]:
    """The largest elements along an axis, and where they are: the axis is mixed, and what is left is new."""
    if is_tensor(node):  # the larger of two, or the largest of all
        return pointwise(reading, node) if len(node.all_input_nodes) > 1 else reduced(reading, node)
    axes, values = reading.axes[node.all_input_nodes[0]], node.meta["val"][0]
    axis = axis_of(arguments(node).get("dim", -1), len(axes))
    (new,) = reading.new_pieces(node, [values.shape[axis]]) if len(values.shape) == len(axes) else [()]
    reading.freeze(node, [axes[axis], new])
    kept = [new] if len(values.shape) == len(axes) else []
    return ((*axes[:axis], *kept, *axes[axis + 1 :]),) * len(node.meta["val"])


def sliced(reading: Reading, node: Node) -> Axes:
    """Some places of one axis, which is a new axis."""
    axes, own = reading.axes[node.all_input_nodes[0]], reading.new_axes(node)
    axis = axis_of(arguments(node)["dim"], len(axes))
    reading.freeze(node, [axes[axis]])
    if len(own) < len(axes):
        return (*axes[:axis], *axes[axis + 1 :])
    reading.cut_from |= dict.fromkeys(leaves(own[axis]), axes[axis])
    return (*axes[:axis], own[axis], *axes[axis + 1 :])


def pieces(reading: Reading, node: Node) -> tuple[Axes, ...]:
    """Several tensors, each with some places of one axis, or with one place and without the axis."""
    axes, drops = reading.axes[node.all_input_nodes[0]], op_name(node) == "unbind"
    axis = axis_of(arguments(node).get("dim", 0), len(axes))
    new = reading.new_pieces(node, [1 if drops else each.shape[axis] for each in node.meta["val"]])
    reading.freeze(node, [axes[axis]])
    reading.cut_from |= dict.fromkeys(all_leaves(new), axes[axis])
    return tuple((*axes[:axis], *(() if drops else (each,)), *axes[axis + 1 :]) for each in new)


def item(reading: Reading, node: Node) -> Axes:
    """One of several results."""
    return reading.several[operand(node, 0)][item_index(node)]


def joined(reading: Reading, node: Node) -> Axes:
    """Tensors after one another along an axis, which is a new axis."""
    own, mixed = reading.new_axes(node), []
    axis = axis_of(arguments(node).get("dim", 0), len(own))
    found: list[Axis] = [own[axis] if place == axis else () for place in range(len(own))]
    for source in [each for each in node.all_input_nodes if is_tensor(each)]:
        for place in [each for each in range(len(own)) if each != axis]:
            source = reading.fit(node, source, place, found[place])
            found[place] = found[place] or reading.axes[source][place]
        mixed.append(reading.axes[source][axis])
    reading.freeze(node, [*mixed, own[axis]])
    _rejoin(reading, mixed, own[axis])
    return tuple(found)


def _rejoin(reading: Reading, pieces: Sequence[Axis], joined: Axis) -> None:
    """Let what is put together from pieces of an axis be that axis again, if it is as long."""
    for factor in all_leaves(pieces):
        whole = reading.cut_from.get(factor, ())
        if whole and _length(whole) == _length(joined) and reading.factors.can_unify(whole, joined):
            reading.factors.unify(whole, joined)
            reading.rejoined.extend(joined)


def _length(axis: Axis) -> int:
    return prod(factor.size for factor in leaves(axis))
