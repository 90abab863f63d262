"""The operators of a traced module carried out in parts, beside the whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from trainwright.model.flow import Instance, wire
from trainwright.model.graph import Op, Tensor
from trainwright.plan.rules import effect, split_dim, splittable
from trainwright.runtime.tracing.traced import Inputs, Traced
from trainwright.runtime.tracing.whole import build_work, results_of
from trainwright.runtime.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """An operator that was carried out in two parts along a dim: the largest difference from the whole."""

    kind: str
    op: str
    dim: str
    difference: float


def split_all(traced: Traced, parameters: Mapping[str, torch.Tensor], inputs: Inputs) -> Iterator[Split]:
    """Every operator in two halves along every dim that it may be split along."""
    values = {value: given.load(inputs[given.name]) for value, given in traced.inputs.items()}
    for instance in wire(traced.graph):
        work = build_work(traced, instance, parameters, values, inputs)
        whole = results_of(traced, instance, work, values)
        values |= dict(zip(instance.outputs, whole, strict=True))
        if instance.op.region == "experts" or instance.layer:
            continue  # the runtime deals rows to experts, not parts of dims; and layers are alike
        kernel = traced.kernels[instance.name]
        for dim in splittable(instance.op):
            if instance.op.kind == "loss" and dim in instance.op.contracted:
                continue  # the runtime sums statistics of a loss instead
            if work.sizes[dim] > 1:
                halves = [kernel(_half(work, dim, number)) for number in range(2)]
                yield _compared(instance, dim, whole, halves)


def _half(work: Work, dim: str, number: int) -> Work:
    op = work.op
    spans = dict(work.at)

    def cut(part: torch.Tensor, tensor: Tensor) -> torch.Tensor:
        own = split_dim(op, tensor, dim)
        if own is None:
            return part
        middle = work.sizes[own] // 2
        spans[own] = low, high = ((0, middle), (middle, work.sizes[own]))[number]
        return part.narrow(tensor.dims.index(own), low, high - low)

    tensors = (*op.inputs, *([op.output] if op.kind == "loss" else []))
    inputs = tuple(cut(each, tensor) for each, tensor in zip(work.inputs, tensors, strict=True))
    weights = {each.name: cut(work.weights[each.name], each) for each in op.weights}
    for tensor in results(op):
        cut(torch.empty([work.sizes[each] for each in tensor.dims]), tensor)
    sums = effect(op, dim) == "sums"
    adds = {each.name: not sums or not number or split_dim(op, each, dim) is not None for each in op.weights}
    return replace(work, at=spans, inputs=inputs, weights=weights, adds=adds)


def results(op: Op) -> tuple[Tensor, ...]:
    """All that an operator writes."""
    return (op.output, *op.extra_outputs)


def _compared(
    instance: Instance,
    dim: str,
    whole: tuple[torch.Tensor, ...],
    halves: list[tuple[torch.Tensor, ...]],
) -> Split:
    op, differences = instance.op, [0.0]
    for place, tensor in enumerate(results(op)):
        own = split_dim(op, tensor, dim)
        first, second = (half[place] for half in halves)
        if own is not None:
            found = torch.cat((first, second), tensor.dims.index(own))
        else:
            found = first + second if effect(op, dim) == "sums" else first
        assert found.shape == whole[place].shape
        if found.is_floating_point() or found.is_complex():
            differences.append((found - whole[place]).detach().abs().max().item())
    return Split(kind=op.kind, op=instance.name, dim=dim, difference=max(differences))
