"""Norms: of the hidden state, of queries and keys."""

import torch

from trainwright.errors import BadInput
from trainwright.runtime.kernels.align import aligned
from trainwright.runtime.work import Work

EPSILON = 1e-5


def normalize(work: Work) -> tuple[torch.Tensor, ...]:
    """Each input over its root mean square and times its scale; less its mean before, if there is a bias."""
    op = work.op
    if op.name.endswith("cosine"):
        return _cosine(work)
    each = len(op.weights) // len(work.inputs)
    found = []
    for index, tensor in enumerate(work.inputs):
        listed = op.weights[index * each : (index + 1) * each]
        dims, wanted = listed[0].dims, op.inputs[index].dims
        for dim in dims:
            if work.length(dim) < work.sizes[dim]:
                raise BadInput(
                    f"op {op.name}", dim, "is split, but the norm is over all of it", "keep it whole"
                )
        axes = [wanted.index(dim) for dim in dims]
        weights = [aligned(work.weights[weight.name], weight.dims, wanted) for weight in listed]
        found.append(_scaled(tensor, axes, weights))
    return tuple(found)


def _scaled(tensor: torch.Tensor, axes: list[int], weights: list[torch.Tensor]) -> torch.Tensor:
    last = axes == [tensor.dim() - 1]
    if last and len(weights) == 2:
        flat = [weight.reshape(-1) for weight in weights]
        return torch.nn.functional.layer_norm(tensor, flat[0].shape, flat[0], flat[1], EPSILON)
    if last:
        flat_scale = weights[0].reshape(-1)
        return torch.nn.functional.rms_norm(tensor, flat_scale.shape, flat_scale, EPSILON)
    centred = tensor - tensor.mean(axes, keepdim=True) if len(weights) == 2 else tensor
    result = centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + EPSILON) * weights[0]
    return result + weights[1] if len(weights) == 2 else result


def _cosine(work: Work) -> tuple[torch.Tensor, ...]:
    """Queries and keys of length one; queries times a scale of their head."""
    (scale,), (weight,) = work.weights.values(), work.op.weights
    query, key = (torch.nn.functional.normalize(each, dim=-1) for each in work.inputs)
    return query * aligned(scale, weight.dims, work.op.inputs[0].dims), key
