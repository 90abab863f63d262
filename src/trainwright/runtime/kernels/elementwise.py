"""Operators that work on each place by itself."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from trainwright.runtime.kernels.align import aligned
from trainwright.runtime.work import Kernel, Work

_THETA = 10000.0  # the base of the wavelengths of rotary positions


def _activate(work: Work) -> tuple[torch.Tensor, ...]:
    """SwiGLU of two projections (weighed by the router's probabilities, for experts), or GELU of one."""
    first, *others = work.inputs
    if not others:
        return (F.gelu(first),)
    found = F.silu(first) * others[0]
    return (found * others[1].unsqueeze(-1) if len(others) > 1 else found,)


def _add(work: Work) -> tuple[torch.Tensor, ...]:
    """The sum of all inputs, each repeated along the dims that it lacks."""
    dims = work.op.output.dims
    parts = [aligned(x, each.dims, dims) for x, each in zip(work.inputs, work.op.inputs, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return (total.clone() if len(parts) == 1 else total,)


def _gate(work: Work) -> tuple[torch.Tensor, ...]:
    value, gate = work.inputs
    return (value * torch.sigmoid(gate),)


def _gate_pair(work: Work) -> tuple[torch.Tensor, ...]:
    left, right, left_gate, right_gate = work.inputs
    return left * torch.sigmoid(left_gate), right * torch.sigmoid(right_gate)


def _gate_by_weight(work: Work) -> tuple[torch.Tensor, ...]:
    """A branch, scaled for each token by what a weight makes of the hidden state."""
    branch, hidden = work.inputs
    (weight,) = work.weights.values()
    return (branch * torch.sigmoid((hidden * weight).sum(-1, keepdim=True)),)


def _same(work: Work) -> tuple[torch.Tensor, ...]:
    return (work.inputs[0].clone(),)


def _mean(work: Work) -> tuple[torch.Tensor, ...]:
    """The mean over a dim; of a part of that dim, its share of the mean."""
    (dim,) = work.op.contracted
    return (work.inputs[0].sum(work.op.inputs[0].dims.index(dim)) / work.sizes[dim],)


def _rotate(work: Work) -> tuple[torch.Tensor, ...]:
    """Queries and keys turned by their position, the two halves of a head together (Su et al. 2021)."""
    first, last = work.at["seq"]
    if len(work.inputs) == 3:
        return _rotate_latent(work)
    return tuple(rotated(each, first, last) for each in work.inputs)


def _rotate_latent(work: Work) -> tuple[torch.Tensor, ...]:
    """Of latent attention only the last columns turn; those of keys are shared by all heads."""
    first, last = work.at["seq"]
    query, plain, shared = work.inputs
    still, turns = torch.split(query, [plain.shape[-1], shared.shape[-1]], dim=-1)
    turned = rotated(shared.unsqueeze(-2), first, last).expand(*plain.shape[:-1], shared.shape[-1])
    return torch.cat((still, rotated(turns, first, last)), -1), torch.cat((plain, turned), -1)


def rotated(tensor: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Heads (places, heads, columns) turned by the places from `first` to `last`."""
    width = tensor.shape[-1]
    rates = _THETA ** (-torch.arange(0, width, 2, device=tensor.device, dtype=torch.float64) / width)
    angles = torch.arange(first, last, device=tensor.device)[:, None] * rates
    cosine, sine = (each.to(tensor.dtype)[:, None, :] for each in (angles.cos(), angles.sin()))
    left, right = tensor.chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)


# By the name of an operator, or the last word of it.
FUNCTIONS: Mapping[str, Kernel] = {
    "activation": _activate,
    "residual": _add, "residual1": _add, "residual2": _add, "residual_cross": _add,
    "embedding.stream": _add, "embedding.pair": _add, "embedding_dropout": _add,
    "partition": _same, "join": _same,
    "pool": _mean,
    "rope": _rotate,
    "gate": _gate, "scale": _gate, "gated": _gate_pair, "shared.gate_scale": _gate_by_weight,
}  # fmt: skip
