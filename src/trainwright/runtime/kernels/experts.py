"""Tokens on their way to experts and back, and neighbours that become one token."""

import torch

from trainwright.runtime.work import Work


def dispatch(work: Work) -> tuple[torch.Tensor, ...]:
    """Each token once for each of its experts."""
    hidden = work.inputs[0]
    return (hidden.unsqueeze(-2).expand(*hidden.shape[:-1], work.sizes["top_k"], hidden.shape[-1]).clone(),)


def combine(work: Work) -> tuple[torch.Tensor, ...]:
    """What the experts of each token have made, added up, with what is shared by all tokens."""
    routed, *shared = work.inputs
    total = routed.sum(-2)
    for each in shared:
        total = total + each
    return (total,)


def merge_neighbours(work: Work) -> tuple[torch.Tensor, ...]:
    """Four tokens in a row side by side, as one."""
    return (work.inputs[0].unflatten(1, (-1, work.sizes["quad"])),)


def routes_of(values: object, instance: object, sizes: object) -> torch.Tensor:
    raise NotImplementedError


def grouped(work: Work, routes: torch.Tensor) -> tuple[torch.Tensor, ...]:
    raise NotImplementedError
