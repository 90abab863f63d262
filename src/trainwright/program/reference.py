"""The unsplit evaluation of a model: what every plan of it must give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.model.flow import Instance
from trainwright.model.graph import Graph, Tensor, dim_sizes
from trainwright.program.call import Call
from trainwright.program.labelled import Array, Part, Places, renamed, whole
from trainwright.program.numbers import backward, forward

RATE = 0.1  # of the update: weights lose this much of their gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Numbers for a model: weights by key, and per microbatch what it is given and what it should answer."""

    instances: tuple[Instance, ...]
    graph: Graph
    sizes: tuple[Mapping[str, int], ...]  # around each operator, for one microbatch
    weights: Mapping[str, Array]
    given: Sequence[Mapping[str, Array | Places]]
    targets: Sequence[Mapping[str, Places]]

    @property
    def tokens(self) -> int:
        """All answers of a step: its loss is their mean."""
        return sum(each.size for targets in self.targets for each in targets.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a step gives: its mean loss, the gradients and the new weights, by key."""

    loss: float
    gradients: Mapping[str, Array]
    weights: Mapping[str, Array]


def weight_key(graph: Graph, instance: Instance, weight: Tensor) -> str:
    """The name under which a weight is stored; a tied one has the same at both of its places."""
    return weight.name if weight.name in graph.tied else f"{instance.block}/{weight.name}"


def build_data(
    graph: Graph, instances: Sequence[Instance], batch: int, seq: int, microbatches: int, seed: int = 0
) -> Data:
    """Random weights, inputs and answers of a step."""
    random = np.random.default_rng(seed)
    sizes = tuple(dim_sizes(graph, graph.segments[each.segment], batch, seq) for each in instances)
    weights: dict[str, Array] = {}
    for instance, local in zip(instances, sizes, strict=True):
        for weight in instance.op.weights:
            shape = [local[dim] for dim in weight.dims]
            weights.setdefault(weight_key(graph, instance, weight), random.normal(size=shape) * 0.5)
    return Data(
        instances=tuple(instances), graph=graph, sizes=sizes, weights=weights,
        given=[_given(instances, sizes, random) for _ in range(microbatches)],
        targets=[_targets(instances, sizes, random) for _ in range(microbatches)],
    )  # fmt: skip


def _given(
    instances: Sequence[Instance], sizes: Sequence[Mapping[str, int]], random: np.random.Generator
) -> dict[str, Array | Places]:
    found: dict[str, Array | Places] = {}
    for instance, local in zip(instances, sizes, strict=True):
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            if name.startswith("input/") and name not in found:
                shape = [local[dim] for dim in tensor.dims]
                index = tensor.element == "index"
                found[name] = (
                    random.integers(local["vocab"], size=shape) if index else random.normal(size=shape)
                )
    return found


def _targets(
    instances: Sequence[Instance], sizes: Sequence[Mapping[str, int]], random: np.random.Generator
) -> dict[str, Places]:
    return {
        instance.name: random.integers(
            local[instance.op.contracted[0]], size=[local[dim] for dim in instance.op.output.dims]
        )
        for instance, local in zip(instances, sizes, strict=True)
        if instance.op.kind == "loss"
    }


@dataclass(slots=True, kw_only=True)
class Tape:
    """One microbatch, forward and back."""

    data: Data
    microbatch: int
    values: dict[str, Part] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    loss: float = 0.0

    def run(self) -> None:
        """Evaluate all operators, then go back through them."""
        for index in range(len(self.data.instances)):
            self._forward(index)
        for index in reversed(range(len(self.data.instances))):
            self._backward(index)

    def _call(self, index: int) -> Call:
        d, instance = self.data, self.data.instances[index]
        inputs = []
        for name, tensor in zip(instance.inputs, instance.op.inputs, strict=True):
            given = d.given[self.microbatch].get(name)
            inputs.append(
                renamed(self.values[name], tensor.dims) if given is None else whole(given, tensor.dims)
            )
        targets = d.targets[self.microbatch].get(instance.name)
        return Call(
            op=instance.op, sizes=d.sizes[index], inputs=inputs,
            weights={
                each.name: whole(d.weights[weight_key(d.graph, instance, each)], each.dims)
                for each in instance.op.weights
            },
            targets=None if targets is None else whole(targets, instance.op.output.dims),
        )  # fmt: skip

    def _forward(self, index: int) -> None:
        instance = self.data.instances[index]
        for name, part in zip(instance.outputs, forward(self._call(index)), strict=True):
            self.values[name] = part
            if instance.op.kind == "loss":
                self.loss += float(part.values.sum()) / self.data.tokens

    def _backward(self, index: int) -> None:
        d, instance = self.data, self.data.instances[index]
        incoming: list[Part | None] = []
        for name in instance.outputs:
            part = self.values[name]
            if instance.op.kind == "loss":
                incoming.append(replace(part, values=np.full_like(part.values, 1.0 / d.tokens)))
            else:
                found = self.gradients.get(name)
                incoming.append(None if found is None else replace(part, values=found))
        if all(each is None for each in incoming):
            return
        back = backward(self._call(index), incoming)
        for name, flows in zip(instance.inputs, back.inputs, strict=True):
            if flows is not None:
                self.gradients[name] = self.gradients.get(name, 0.0) + flows.values
        for weight in instance.op.weights:
            key = weight_key(d.graph, instance, weight)
            if weight.name in back.weights:
                self.weights[key] = self.weights.get(key, 0.0) + back.weights[weight.name].values


def reference(data: Data) -> Answer:
    """The loss, gradients and new weights of a step, from whole tensors on one device."""
    tapes = [Tape(data=data, microbatch=number) for number in range(len(data.given))]
    gradients = {key: np.zeros_like(weight) for key, weight in data.weights.items()}
    for tape in tapes:
        tape.run()
        for key, gradient in tape.weights.items():
            gradients[key] = gradients[key] + gradient
    return Answer(
        loss=sum(tape.loss for tape in tapes),
        gradients=gradients,
        weights={key: weight - RATE * gradients[key] for key, weight in data.weights.items()},
    )
