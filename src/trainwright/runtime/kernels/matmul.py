"""Products with weights: several results of one input, each with its weight and perhaps a bias."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch

from trainwright.model.graph import Op, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One result: its weight seen as a matrix, over what is summed and what is made."""

    output: Tensor
    weight: Tensor
    bias: Tensor | None
    summed: tuple[str, ...]
    made: tuple[str, ...]

    @property
    def transposed(self) -> bool:
        """Whether the weight has the dims of the result before those that are summed."""
        return self.weight.dims == (*self.made, *self.summed)

    def matrix(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight as a matrix, from summed to made."""
        dims = self.weight.dims
        if self.transposed:
            return weight.reshape(prod(weight.shape[: len(self.made)]), -1).t()
        if dims != (*self.summed, *self.made):
            weight = weight.permute([dims.index(dim) for dim in (*self.summed, *self.made)])
        return weight.reshape(prod(weight.shape[: len(self.summed)]), -1)

    def of_matrix(self, matrix: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """A matrix from summed to made, shaped as the weight is."""
        if self.transposed:
            return matrix.t().reshape(weight.shape)
        dims = self.weight.dims
        order = (*self.summed, *self.made)
        shape = [weight.shape[dims.index(dim)] for dim in order]
        return matrix.reshape(shape).permute([order.index(dim) for dim in dims])


def projections_of(op: Op) -> tuple[Projection, ...]:
    """The results of a matmul."""
    main = [weight for weight in op.weights if set(op.contracted) <= set(weight.dims)]
    others = [weight for weight in op.weights if weight not in main]
    source = op.inputs[0].dims
    summed = source[len(source) - len(op.contracted) :]
    found = []
    for output, weight in zip((op.output, *op.extra_outputs), main, strict=True):
        stem = weight.name.removesuffix(".weight")
        bias = [each for each in others if each.name == f"{stem}.bias" or len(main) == 1]
        made = tuple(dim for dim in output.dims if dim in weight.dims)
        found.append(
            Projection(output=output, weight=weight, bias=bias[0] if bias else None, summed=summed, made=made)
        )
    return tuple(found)


def project(
    source: torch.Tensor,
    listed: Sequence[Projection],
    weights: Mapping[str, torch.Tensor],
    adds: Mapping[str, bool],
) -> tuple[torch.Tensor, ...]:
    """All results of an input."""
    found = []
    for each in listed:
        rows = source.reshape(-1, prod(source.shape[source.dim() - len(each.summed) :]))
        matrix = each.matrix(weights[each.weight.name])
        if each.bias is not None and adds.get(each.bias.name, True):
            result = torch.addmm(weights[each.bias.name].reshape(-1), rows, matrix)
        else:
            result = rows @ matrix
        found.append(result.view(*source.shape[: source.dim() - len(each.summed)], *_shape(each, weights)))
    return tuple(found)


def _shape(each: Projection, weights: Mapping[str, torch.Tensor]) -> list[int]:
    weight = weights[each.weight.name]
    return [weight.shape[each.weight.dims.index(dim)] for dim in each.made]


def project_back(
    gradients: Sequence[torch.Tensor | None],
    listed: Sequence[Projection],
    weights: Mapping[str, torch.Tensor],
) -> torch.Tensor | None:
    """The gradient of the input, from those of the results that count here."""
    total: torch.Tensor | None = None
    for each, gradient in zip(listed, gradients, strict=True):
        if gradient is None:
            continue
        lead = gradient.shape[: gradient.dim() - len(each.made)]
        weight = weights[each.weight.name]
        rows = gradient.reshape(prod(lead), -1)
        matrix = each.matrix(weight)
        total = rows @ matrix.t() if total is None else torch.addmm(total, rows, matrix.t(), out=total)
        shape = (*lead, *(weight.shape[each.weight.dims.index(dim)] for dim in each.summed))
    return None if total is None else total.view(shape)


def _add_product(each: Projection, rows: torch.Tensor, given: torch.Tensor, total: torch.Tensor) -> None:
    matrix = each.matrix(total)
    if matrix.data_ptr() == total.data_ptr():
        matrix.addmm_(rows.t(), given)
    else:
        total.add_(each.of_matrix(rows.t() @ given, total))


def weight_gradients(
    source: torch.Tensor,
    gradients: Sequence[torch.Tensor | None],
    listed: Sequence[Projection],
    totals: Mapping[str, torch.Tensor],
) -> None:
    """Add to `totals` the gradients of weights and biases that it has, from an input and its results'."""
    for each, gradient in zip(listed, gradients, strict=True):
        if gradient is None:
            continue
        rows = source.reshape(-1, prod(source.shape[source.dim() - len(each.summed) :]))
        given = gradient.reshape(rows.shape[0], -1)
        if each.weight.name in totals:
            _add_product(each, rows, given, totals[each.weight.name])
        if each.bias is not None:
            bias = totals[each.bias.name]
            bias.add_(given.sum(0).view(bias.shape))
