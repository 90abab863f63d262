"""Gradients that are summed once a step: those of operators that no sample reaches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainwright.model.flow import Instance
from trainwright.model.graph import Op, Tensor
from trainwright.program.placed import Placed
from trainwright.program.tensors import tensor_layout

Readers = Mapping[str, Sequence[tuple[int, Tensor]]]  # by value: the operators that read it, and as what


def with_late_sums(
    instances: Sequence[Instance], placed: Sequence[Placed], sizes: Sequence[Mapping[str, int]]
) -> list[Placed]:
    """The operators placed, with the axes along which their gradients may stay shares until the step ends.

    What is made from weights alone (a table of position biases) is the same for every sample, so devices with
    other samples hold copies of it, and each has the share of its gradient that its own samples give. A
    backward is linear in the gradient that comes in: shares can go all the way back to the weights, whose
    gradients are summed after the last microbatch anyway.
    """
    found = list(placed)
    made: dict[tuple[int, tuple[int, ...]], Placed] = {}
    fixed = _without_samples(instances)
    readers = _readers(instances, {name for index in fixed for name in instances[index].outputs})
    for index in reversed(fixed):
        axes = _shared_axes(index, instances, found, sizes, readers)
        if axes:
            key = (id(placed[index]), axes)
            found[index] = made.setdefault(key, replace(placed[index], late=axes))
    return found


def _without_samples(instances: Sequence[Instance]) -> list[int]:
    """Operators that are made from weights alone; a mean over samples has none left, but comes from them."""
    reached: set[str] = set()
    found: list[int] = []
    for index, each in enumerate(instances):
        if _has_samples(each.op) or not reached.isdisjoint(each.inputs):
            reached.update(each.outputs)
        elif each.op.kind != "loss":
            found.append(index)
    return found


def _has_samples(op: Op) -> bool:
    return any("batch" in tensor.dims for tensor in (*op.inputs, op.output))


def _readers(instances: Sequence[Instance], names: set[str]) -> Readers:
    found: dict[str, list[tuple[int, Tensor]]] = {}
    for index, instance in enumerate(instances) if names else ():
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name in names:
                found.setdefault(name, []).append((index, tensor))
    return found


def _shared_axes(
    index: int,
    instances: Sequence[Instance],
    placed: Sequence[Placed],
    sizes: Sequence[Mapping[str, int]],
    readers: Readers,
) -> tuple[int, ...]:
    """The copying axes of an operator over which every gradient of its results comes in shares."""
    own = placed[index]
    shared = {axis for axis, dim in enumerate(own.dims) if not dim}
    for name in instances[index].outputs:
        for other, tensor in readers.get(name, ()):
            if placed[other].mesh != own.mesh:
                return ()
            op = instances[other].op
            layout = tensor_layout(placed[other], op, tensor, "gradient of read", sizes[other])
            shared &= set(layout.partial)
    return tuple(sorted(shared))
