"""Queries meet keys: all at once, or block by block with the softmax made up as blocks come."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from trainwright.runtime.work import Meet, Work

_TILE = 1 << 22  # scores that are held at once


def meet(
    work: Work,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    weights: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """PyTorch's attention of the queries to the keys that are here, or what the work has in its place.

    `weights` multiply what each key counts after the softmax (dropout).
    """
    if work.meet is not None:
        return work.meet(query, key, value, weights=weights, **options)
    if weights is None:
        return F.scaled_dot_product_attention(query, key, value, **options)
    return (scores_of(query, key, **options).softmax(-1) * weights) @ value


def scores_of(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    attn_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """How much each query likes each key, before the softmax."""
    scores = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, float("-inf"))
    return scores if attn_mask is None else scores + attn_mask


@dataclass(slots=True)
class Online:
    """What queries have made of the blocks of keys so far (Milakov & Gimelshein 2018, arXiv 1805.02867).

    `best` is the largest score of each query, `total` the sum of the exponentials of scores below it, `mixed`
    that of values weighed by them, `mean` the latter by the former.
    """

    best: torch.Tensor | None = None
    total: torch.Tensor = field(init=False)
    mixed: torch.Tensor = field(init=False)
    mean: torch.Tensor = field(init=False)

    def meet(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """The mean of all values that came until now."""
        if self.best is None:
            shape, new = query.shape[:-1], query.new_empty(0, dtype=torch.float32)
            self.best, self.total = new.new_full(shape, float("-inf")), new.new_zeros(shape)
            self.mixed = new.new_zeros((*shape, value.shape[-1]))
        for rows, scores, counted in _tiles(query, key, weights, options):
            self._add(rows, scores, counted, value.float())
        self.mean = (self.mixed / self.total.unsqueeze(-1)).to(query.dtype)
        return self.mean

    def _add(
        self, rows: slice, scores: torch.Tensor, weights: torch.Tensor | None, value: torch.Tensor
    ) -> None:
        assert self.best is not None
        best, total, mixed = self.best[..., rows], self.total[..., rows], self.mixed[..., rows, :]
        most = torch.maximum(best, scores.amax(-1))
        level = most.masked_fill(most == float("-inf"), 0.0)  # a query may meet no key of a block
        shares = (scores - level.unsqueeze(-1)).exp_()
        before = (best - level).exp_()
        total.mul_(before).add_(shares.sum(-1))
        shares = shares if weights is None else shares * weights
        mixed.mul_(before.unsqueeze(-1)).add_(shares @ value)
        best.copy_(most)

    @property
    def level(self) -> torch.Tensor:
        """The logarithm of the sum of the exponentials of each query's scores."""
        assert self.best is not None
        return self.best + self.total.log()


def back_meet(mean: torch.Tensor, level: torch.Tensor) -> Meet:
    """The attention to one block of which only the gradients are wanted; `mean` and `level` are of all."""

    def one_block(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        weights: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        found: torch.Tensor = _OneBlock.apply(query, key, value, mean, level, weights, options)  # type: ignore[no-untyped-call]
        return found

    return one_block


class _OneBlock(torch.autograd.Function):
    """What one block of keys and values adds to the gradients of all of them."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> torch.Tensor:
        query, key, value, mean, level, weights, options = given
        ctx.save_for_backward(query, key, value, mean, level, weights)
        ctx.options = options
        return mean.view_as(mean)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, mean, level, weights = ctx.saved_tensors
        scale = ctx.options.get("scale") or query.shape[-1] ** -0.5
        keys, values, incoming = key.float(), value.float(), gradient.float()
        common = (incoming * mean.float()).sum(-1, keepdim=True)
        to_query = torch.zeros_like(query, dtype=torch.float32)
        to_key, to_value = torch.zeros_like(keys), torch.zeros_like(values)
        for rows, scores, counted in _tiles(query, key, weights, ctx.options):
            shares = (scores - level[..., rows, None]).exp_()
            given = incoming[..., rows, :]
            weighed = given @ values.transpose(-1, -2)
            to_value += (shares if counted is None else shares * counted).transpose(-1, -2) @ given
            weighed = weighed if counted is None else weighed * counted
            changes = shares.mul_(weighed.sub_(common[..., rows, :])).mul_(scale)
            to_query[..., rows, :] = changes @ keys
            to_key += changes.transpose(-1, -2) @ query[..., rows, :].float()
        found = (to_query.to(query.dtype), to_key.to(key.dtype), to_value.to(value.dtype))
        return (*found, None, None, None, None)


def _tiles(
    query: torch.Tensor, key: torch.Tensor, weights: torch.Tensor | None, options: dict[str, Any]
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor | None]]:
    """Some queries after others: which, their scores, and the weights of those."""
    length, across = query.shape[-2], key.shape[-2]
    step = max(1, _TILE // max(query[..., 0, 0].numel() * across, 1))
    mask, keys = options.get("attn_mask"), key.float()
    if options.get("is_causal"):
        mask = torch.ones(length, across, dtype=torch.bool, device=query.device).tril()
    for low in range(0, length, step):
        rows = slice(low, min(low + step, length))
        here = mask if mask is None or mask.shape[-2] == 1 else mask[..., rows, :]
        scores = scores_of(query[..., rows, :].float(), keys, scale=options.get("scale"), attn_mask=here)
        yield rows, scores, None if weights is None else weights[..., rows, :]
