"""A kernel that carries out the nodes of one operator on any part of its tensors."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.fx import Node, map_arg

from trainwright.errors import BadInput
from trainwright.runtime.tracing.factors import Axes, Axis, Factor
from trainwright.runtime.work import Span, Work

Values = dict[Node, Any]
Step = Callable[["Part", Values], Any]


@dataclass(frozen=True, slots=True)
class Part:
    """The work that a kernel is given, by factors; `shapes` are those that have been asked for before."""

    work: Work
    names: Mapping[Factor, str]
    shapes: dict[int, list[int]] = field(default_factory=dict)

    def span(self, factor: Factor) -> Span:
        """Which part of a dim is here; a dim that lies inside the operator is whole."""
        name = self.names.get(factor)
        return (0, factor.size) if name is None else self.work.at[name]

    def whole(self, factor: Factor) -> int:
        """The size of a whole dim."""
        name = self.names.get(factor)
        return factor.size if name is None else self.work.sizes[name]

    def length(self, factor: Factor) -> int:
        """How much of a dim is here."""
        low, high = self.span(factor)
        return high - low

    def shape(self, axes: Axes) -> list[int]:
        """The shape of a tensor here."""
        found = self.shapes.get(id(axes))
        if found is None:
            found = self.shapes[id(axes)] = [prod(self.length(each) for each in axis) for axis in axes]
        return found

    def cut(self, tensor: torch.Tensor, axes: Axes) -> torch.Tensor:
        """The part that is here of a tensor that has some axes whole."""
        for place, (axis, size) in enumerate(zip(axes, self.shape(axes), strict=True)):
            if tensor.shape[place] == size:
                continue
            sizes = [self.whole(factor) for factor in axis]
            inner = tensor.reshape(*tensor.shape[:place], *sizes, *tensor.shape[place + 1 :])
            for offset, factor in enumerate(axis):
                inner = inner.narrow(place + offset, self.span(factor)[0], self.length(factor))
            tensor = inner.flatten(place, place + len(axis) - 1)
        return tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """How a tensor lies outside of the operator, and its axes inside.

    `inward` is the order of the stored dims that the axes have, empty if they are the same; `outward` is the
    way back, and `single` has an axis for each dim.
    """

    node: Node
    axes: Axes
    single: Axes
    inward: tuple[int, ...]
    outward: tuple[int, ...]

    def load(self, part: Part, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the nodes read it."""
        return (tensor.permute(self.inward) if self.inward else tensor).reshape(part.shape(self.axes))

    def store(self, part: Part, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as it lies outside."""
        tensor = tensor.reshape(part.shape(self.single))
        return tensor.permute(self.outward) if self.outward else tensor


def build_stored(node: Node, order: Axis, axes: Axes) -> Stored:
    """How a tensor with the given axes lies if its dims are stored in `order`."""
    factors = tuple(factor for axis in axes for factor in axis)
    straight = factors == order
    return Stored(
        node=node,
        axes=axes,
        single=tuple((factor,) for factor in factors),
        inward=() if straight else tuple(order.index(factor) for factor in factors),
        outward=() if straight else tuple(factors.index(factor) for factor in order),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Replay:
    """The kernel of one operator: its nodes in order, each with what it does on a part."""

    names: Mapping[Factor, str]
    inputs: tuple[Stored, ...]
    weights: Mapping[str, Stored]
    constants: Mapping[Node, tuple[torch.Tensor, Axes]]
    steps: tuple[tuple[Node, Step], ...]
    outputs: tuple[Stored, ...]
    samples: int = 0  # that it holds for; 0: any number
    _moved: dict[tuple[Node, torch.device], torch.Tensor] = field(default_factory=dict)
    _shapes: dict[tuple[Span, ...], dict[int, list[int]]] = field(default_factory=dict)

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Those of its results."""
        return tuple(stored.node.meta["val"].dtype for stored in self.outputs)

    def __call__(self, work: Work) -> tuple[torch.Tensor, ...]:
        """The operator's results, or its part of them."""
        if self.samples and work.sizes["batch"] != self.samples:
            raise BadInput(
                f"op {work.op.name}: samples of a microbatch", work.sizes["batch"],
                f"it was traced for {self.samples}, and what it does depends on their number",
                "trace the module with as many samples",
            )  # fmt: skip
        try:
            return self._results(work)
        except (RuntimeError, IndexError) as error:
            other = [name for factor, name in self.names.items() if work.sizes[name] != factor.size]
            if not other:
                raise
            raise BadInput(
                f"op {work.op.name}: {other[0]}", work.sizes[other[0]], "it was traced for another size",
                "trace the module with inputs of this size",
            ) from error  # fmt: skip

    def _results(self, work: Work) -> tuple[torch.Tensor, ...]:
        spans = tuple([work.at[name] for name in self.names.values()])
        part = Part(work, self.names, self._shapes.setdefault(spans, {}))
        values: Values = {}
        for stored, tensor in zip(self.inputs, work.inputs, strict=True):
            values[stored.node] = stored.load(part, tensor)
        for name, stored in self.weights.items():
            values[stored.node] = stored.load(part, work.weights[name])
        for node, (constant, axes) in self.constants.items():
            device = next(iter(values.values())).device if values else constant.device
            values[node] = part.cut(self._constant(node, device), axes)
        for node, step in self.steps:
            values[node] = step(part, values)
        return tuple([stored.store(part, values[stored.node]) for stored in self.outputs])

    def _constant(self, node: Node, device: torch.device) -> torch.Tensor:
        key = (node, device)
        if key not in self._moved:
            self._moved[key] = self.constants[node][0].to(device)
        return self._moved[key]


def call(node: Node, axes: Axes | None) -> Step:
    """The node's own operation; of its result, the part that is here."""
    target: Any = node.target
    flat = all(not isinstance(each, list | tuple | dict) for each in node.args) and not any(
        isinstance(each, Node) for each in node.kwargs.values()
    )
    fixed = [None if isinstance(each, Node) else each for each in node.args]
    places = [(place, each) for place, each in enumerate(node.args) if isinstance(each, Node)]
    options = dict(node.kwargs)

    def step(part: Part, values: Values) -> Any:
        if flat:
            args = list(fixed)
            for place, each in places:
                args[place] = values[each]
            found = target(*args, **options)
        else:
            given, more = map_arg((node.args, options), values.__getitem__)
            found = target(*given, **more)
        return found if axes is None else part.cut(found, axes)

    return step


def reshape(node: Node, axes: Axes) -> Step:
    """What the node reads, in another shape."""
    source = node.all_input_nodes[0]
    return lambda part, values: values[source].reshape(part.shape(axes))


def expand(node: Node, axes: Axes) -> Step:
    """What the node reads, repeated."""
    source = node.all_input_nodes[0]
    return lambda part, values: values[source].expand(part.shape(axes))


def resolve(values: Values, args: Sequence[Any]) -> list[Any]:
    """Arguments with tensors in the place of nodes."""
    return [values[each] if isinstance(each, Node) else each for each in args]
