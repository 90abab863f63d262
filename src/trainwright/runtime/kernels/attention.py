"""Attention over any dim, of any part of the queries."""

import torch
import torch.nn.functional as F

from trainwright.model.graph import query_dim, query_groups
from trainwright.runtime.kernels.align import aligned
from trainwright.runtime.kernels.meeting import meet
from trainwright.runtime.work import Work


def attend(work: Work) -> tuple[torch.Tensor, ...]:
    """The mean of values, weighted by how queries meet keys; heads may share keys, a bias may be given."""
    op = work.op
    names, meant, groups = op.inputs[0].dims, query_dim(op), query_groups(op)
    order = [*(names.index(dim) for dim in groups), names.index(meant), len(names) - 1]
    query, key, value = (each.permute(order) for each in work.inputs[:3])
    key, value = (_for_heads(work, each, groups) for each in (key, value))
    if op.window and not op.causal:
        found = _in_windows(work, query, key, value)
    else:
        mask, causal = _mask(work, query)
        found = meet(work, query, key, value, attn_mask=mask, is_causal=causal)
    back = [order.index(axis) for axis in range(len(order))]
    return (found.permute(back),)


def _for_heads(work: Work, tensor: torch.Tensor, groups: tuple[str, ...]) -> torch.Tensor:
    """Keys or values, one for each query head that is here."""
    shared = "kv_heads" in work.op.inputs[1].dims and "heads" in groups
    if not shared or work.sizes["kv_heads"] == work.sizes["heads"]:
        return tensor
    each, (first, last), start = (
        work.sizes["heads"] // work.sizes["kv_heads"], work.at["heads"], work.at["kv_heads"][0]
    )  # fmt: skip
    owners = torch.arange(first, last, device=tensor.device) // each - start
    return tensor.index_select(groups.index("heads"), owners)


def _mask(work: Work, query: torch.Tensor) -> tuple[torch.Tensor | None, bool]:
    """Which keys each query meets: a mask or bias if there is one, and whether all before it."""
    op = work.op
    if len(work.inputs) > 3:
        wanted = (*query_groups(op), query_dim(op), op.contracted[0])
        return aligned(work.inputs[3], op.inputs[3].dims, wanted), False
    if not op.causal:
        return None, False
    here, keys = work.at[query_dim(op)], work.at[op.contracted[0]]
    window = op.window or 1 << 30
    if here == keys and window >= keys[1] - keys[0]:
        return None, True
    late = torch.arange(*here)[:, None] - torch.arange(*keys)[None, :]
    return ((late >= 0) & (late < window)).to(query.device), False


def _in_windows(work: Work, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Queries meet the keys of their own window: `window` tokens in a row, with one bias for all windows."""
    op, sizes = work.op, work.sizes
    assert op.window is not None
    (first, last), start = work.at[query_dim(op)], work.at[op.contracted[0]][0]
    key, value = (each.narrow(-2, first - start, last - first) for each in (key, value))
    query, key, value = (
        each.reshape(*each.shape[:-2], -1, op.window, each.shape[-1]) for each in (query, key, value)
    )
    bias = work.inputs[3].unsqueeze(1) if len(work.inputs) > 3 else None  # heads, windows, queries, keys
    scale = 1.0 if "cosine" in op.inputs[0].name else sizes[op.inputs[0].dims[-1]] ** -0.5
    found = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    return found.flatten(-3, -2)
