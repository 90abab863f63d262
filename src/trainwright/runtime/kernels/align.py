"""Tensors brought to common dims, by name."""

from collections.abc import Sequence

import torch


def aligned(tensor: torch.Tensor, dims: Sequence[str], wanted: Sequence[str]) -> torch.Tensor:
    """A tensor with its dims in the wanted order, and size 1 for those that it lacks."""
    if tuple(dims) == tuple(wanted):
        return tensor
    present = [dim for dim in wanted if dim in dims]
    turned = tensor.permute([list(dims).index(dim) for dim in present])
    for at, dim in enumerate(wanted):
        if dim not in dims:
            turned = turned.unsqueeze(at)
    return turned
