"""How products, attention, norms, tables and convolutions relate the axes of what they read and make."""

from torch.fx import Node

from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.factors import Axes, Conflict, all_leaves, leaves
from trainwright.runtime.tracing.nodes import arguments, op_name, operand, shape


def looked_up(reading: Reading, node: Node) -> Axes:
    """A row of a table for each index."""
    table, indices = operand(node, 0), operand(node, 1)
    return (*reading.axes[indices], reading.axes[table][1])


def normalized(reading: Reading, node: Node) -> Axes:
    """A norm over the last axes, with weights that have them."""
    given = arguments(node)
    axes, width = reading.axes[given["input"]], len(given["normalized_shape"])
    for weight in [each for each in (given["weight"], given.get("bias")) if each is not None]:
        for axis in range(-width, 0):
            reading.fit(node, weight, axis, axes[axis])
    reading.freeze(node, axes[len(axes) - width :])
    return axes


def of_samples(reading: Reading, node: Node) -> Axes:
    """Norms over groups of channels: all but samples is mixed, channels are those of the weights."""
    given = arguments(node)
    axes = reading.axes[given["input"]]
    for weight in (given["weight"], given["bias"]):
        if isinstance(weight, Node):
            reading.fit(node, weight, 0, axes[1])
    reading.freeze(node, axes[1:])
    return axes


def of_channels(reading: Reading, node: Node) -> Axes:
    """A norm of each channel: by constants, or by statistics of all samples and places, which it mixes."""
    given = arguments(node)
    axes = reading.axes[given["input"]]
    for each in (given["weight"], given["bias"], given["running_mean"], given["running_var"]):
        if isinstance(each, Node):
            reading.fit(node, each, 0, axes[1])
    reading.freeze(node, (axes[0], *axes[2:]) if given["training"] else ())
    return axes


def linear(reading: Reading, node: Node) -> Axes:
    """A product with a weight whose last axis is summed over."""
    given = arguments(node)
    return _product(reading, node, given["input"], (given["weight"], -1), given.get("bias"))


def added_product(reading: Reading, node: Node) -> Axes:
    """A product of two matrices with a bias."""
    given = arguments(node)
    if given.get("beta", 1) != 1 or given.get("alpha", 1) != 1:
        raise Conflict("a product that is scaled")
    return _product(reading, node, given["mat1"], (given["mat2"], -2), given["self"])


def matrix_product(reading: Reading, node: Node) -> Axes:
    """A product of matrices, one for each place of the axes before their last two."""
    left, right = operand(node, 0), operand(node, 1)
    if not 2 <= len(shape(right)) <= max(len(shape(left)), 2) or len(shape(left)) < 2:
        raise Conflict("a product of vectors")
    return _product(reading, node, left, (right, -2), None)


def _product(reading: Reading, node: Node, left: Node, right: tuple[Node, int], bias: Node | None) -> Axes:
    """Two tensors summed over the last axis of the one and the stated axis of the other."""
    other, axis = right
    free = -1 if axis == -2 else -2
    *lead, summed = reading.axes[left]
    if set(all_leaves((*lead, summed))) & set(leaves(reading.axes[other][free])):
        other = reading.other_name(node, other, free)
    other = reading.fit(node, other, axis, summed)
    for place in range(-len(shape(other)), -2):  # the lead lacks the summed axis, so its places are one on
        other = reading.fit(node, other, place, lead[place + 1])
        lead[place + 1] = lead[place + 1] or reading.axes[other][place]
    made = reading.axes[other][free]
    if node not in reading.axes:
        reading.factors.keep_apart((*lead, made, summed))
    if bias is not None:
        reading.fit(node, bias, -1, made)
    return (*lead, made)


def attention(reading: Reading, node: Node) -> Axes:
    """Queries, keys and values: heads before the last two axes; heads of keys may be fewer."""
    queries = reading.axes[operand(node, 0)]
    rank = len(queries)
    for place in (1, 2):
        for axis in (*range(rank - 3), *((-1,) if place == 1 else ())):
            reading.fit(node, operand(node, place), axis, queries[axis])
        if set(leaves(reading.axes[operand(node, place)][-2])) & set(all_leaves(queries)):
            reading.other_name(node, operand(node, place), -2)
    keys = reading.axes[operand(node, 1)]
    for axis in (-2, -3)[: rank - 2]:
        reading.fit(node, operand(node, 2), axis, keys[axis])
    mask = arguments(node)["attn_mask"]
    for axis in range(-len(shape(mask)), 0) if mask is not None else ():
        mask = reading.fit(node, mask, axis, (*queries[:-1], keys[-2])[axis])
    reading.freeze(node, [keys[-2], queries[-1]])
    return (*queries[:-1], reading.axes[operand(node, 2)][-1])


def mixture(reading: Reading, node: Node) -> Axes:
    """Experts that each read and make hidden vectors."""
    hidden = reading.axes[operand(node, 0)][-1]
    experts, width = reading.axes[operand(node, 1)][0], reading.axes[operand(node, 2)][1]
    router, inward, outward = (experts, hidden), (experts, width, hidden), (experts, hidden, width)
    for place, wanted in enumerate((router, inward, inward, outward), start=1):
        for axis, each in enumerate(wanted):
            reading.fit(node, operand(node, place), axis, each)
    return reading.axes[operand(node, 0)]


def loss(reading: Reading, node: Node) -> Axes:
    """One number."""
    return ()


def answered(reading: Reading, node: Node) -> Axes:
    """A loss for each answer: the classes, which lie along the second axis, are mixed."""
    logits, targets, weight = operand(node, 0), operand(node, 1), node.args[2]
    axes = reading.axes[logits]
    place = 1 if len(axes) > 1 else 0
    kept = (*axes[:place], *axes[place + 1 :])
    by_class = len(shape(targets)) < len(axes)
    for axis, wanted in enumerate(kept if by_class else axes):
        targets = reading.fit(node, targets, axis, wanted)
    if isinstance(weight, Node):
        reading.fit(node, weight, 0, axes[place])
    reading.freeze(node, [axes[place]])
    return kept


def counted(reading: Reading, node: Node) -> Axes:
    """What each answer counts: by its target, and by the weights of all classes."""
    weight = node.args[1]
    reading.freeze(node, reading.axes[weight] if isinstance(weight, Node) else ())
    return reading.axes[operand(node, 0)]


def convolved(reading: Reading, node: Node) -> Axes:
    """A convolution keeps samples and makes channels; all else is mixed."""
    given = arguments(node)
    axes, own = reading.axes[given["input"]], reading.new_axes(node)
    weight = reading.axes[given["weight"]]
    if len(axes) != len(weight) or given.get("groups", 1) != 1:
        raise Conflict("a convolution by groups")
    if given.get("bias") is not None:
        reading.fit(node, given["bias"], 0, weight[0])
    reading.freeze(node, (*axes[1:], *weight[1:], *own[2:]))
    return (axes[0], weight[0], *own[2:])


def pooled(reading: Reading, node: Node) -> Axes:
    """Pooling and resizing: samples and channels are kept, places are mixed."""
    source = node.all_input_nodes[0]
    axes, own = reading.axes[source], reading.new_axes(node)
    places = 1 if op_name(node).endswith("1d") else 2
    reading.freeze(node, (*axes[-places:], *own[-places:]))
    return (*axes[:-places], *own[-places:])
