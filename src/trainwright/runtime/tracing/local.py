"""Operations whose part is not what the whole operation makes of a part: they look at where it lies."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from trainwright.runtime.kernels.meeting import meet
from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.factors import Axis, Factor, all_leaves, leaves
from trainwright.runtime.tracing.groups import source_of
from trainwright.runtime.tracing.masks import kept
from trainwright.runtime.tracing.nodes import arguments, op_name, operand
from trainwright.runtime.tracing.replay import Part, Step, Values, resolve
from trainwright.runtime.work import Span


def dropout(reading: Reading, node: Node, place: int) -> Step:
    """Zeros at places that the seed chooses, all else scaled up."""
    given, factors = arguments(node), all_leaves(reading.axes[node])
    source, rate = given["input"], float(given["p"])

    def step(part: Part, values: Values) -> torch.Tensor:
        tensor: torch.Tensor = values[source]
        if not part.work.learns:
            return tensor
        return tensor * _scaled_mask(part, factors, place, rate, tensor).reshape(tensor.shape)

    return step


def _scaled_mask(part: Part, factors: Axis, place: int, rate: float, like: torch.Tensor) -> torch.Tensor:
    spans, sizes = [_in_step(part, each) for each in factors], [part.whole(each) for each in factors]
    mask = kept(part.work.seed, place, spans, sizes, rate, like.device)
    return mask.to(like.dtype) / (1.0 - rate)


def _in_step(part: Part, factor: Factor) -> Span:
    """Which part of a dim is here; samples are counted over all microbatches of a step."""
    low, high = part.span(factor)
    first = part.work.sample if part.names.get(factor) == "batch" else 0
    return low + first, high + first


def table_rows(reading: Reading, node: Node, weight: str) -> Step:
    """Rows of a table; zeros for those that lie elsewhere or that another device adds."""
    table, indices = operand(node, 0), operand(node, 1)
    unlearned = int(arguments(node)["padding_idx"])  # a row without a gradient; -1: none
    (rows,) = leaves(reading.axes[table][0])

    def step(part: Part, values: Values) -> torch.Tensor:
        numbers: torch.Tensor = values[indices]
        entries = _added(part, weight, values[table])
        low, high = part.span(rows)
        padding = unlearned - low if low <= unlearned < high else None
        if high - low == part.whole(rows):
            return F.embedding(numbers, entries, padding)
        here = (numbers >= low) & (numbers < high)
        return F.embedding((numbers - low) * here, entries, padding) * here.unsqueeze(-1)

    return step


def _added(part: Part, name: str, weight: torch.Tensor) -> torch.Tensor:
    """A weight that is added to a result; zeros, with its gradient, where another device adds it."""
    return weight if part.work.adds.get(name, True) else weight - weight.detach()


def product(node: Node, biases: Mapping[Node, str]) -> Step:
    """A product with weights; where several devices sum their shares, one of them adds the bias."""
    given = arguments(node)
    bias = given.get("bias") if op_name(node) == "linear" else given.get("self")
    operands = (
        [given["input"], given["weight"]] if op_name(node) == "linear" else [given["mat1"], given["mat2"]]
    )
    name = "" if bias is None else biases.get(source_of(bias), "")

    def step(part: Part, values: Values) -> torch.Tensor:
        one, other = resolve(values, operands)
        added = None if bias is None else _added(part, name, values[bias])
        if op_name(node) == "linear":
            return F.linear(one, other, added)
        return one @ other if added is None else torch.addmm(added, one, other)

    return step


def attention(reading: Reading, node: Node, causal: "Causal | None", place: int) -> Step:
    """Attention of the queries that are here to the keys that are here."""
    given = arguments(node)
    axes = [reading.axes[operand(node, each)] for each in range(3)]
    wide, narrow = (leaves(each[-3]) if len(each) > 3 else () for each in axes[:2])
    factors = (*all_leaves(axes[0][:-1]), *leaves(axes[1][-2]))
    rate, mask = float(given["dropout_p"]), given["attn_mask"]

    def step(part: Part, values: Values) -> torch.Tensor:
        query, key, value = (values[operand(node, each)] for each in range(3))
        if wide != narrow:
            key, value = (_for_heads(part, each, wide, narrow) for each in (key, value))
        options: dict[str, Any] = {"scale": given["scale"]}
        if causal is not None:
            options |= causal.options(part, query.device)
        elif mask is not None:
            options["attn_mask"] = values[mask]
        if rate and part.work.learns:
            shape = (*query.shape[:-1], key.shape[-2])
            options["weights"] = _scaled_mask(part, factors, place, rate, query).reshape(shape)
        return meet(part.work, query, key, value, **options)

    return step


def _for_heads(part: Part, tensor: torch.Tensor, wide: Axis, narrow: Axis) -> torch.Tensor:
    """Keys or values, one for each query head that is here."""
    queries, keys = _places(part, wide), _places(part, narrow)
    each = prod(part.whole(factor) for factor in wide) // prod(part.whole(factor) for factor in narrow)
    owners = [place // each for place in queries]
    if owners == keys:
        return tensor
    if owners == [key for key in keys for _ in range(len(queries) // len(keys))]:
        return tensor.repeat_interleave(len(queries) // len(keys), -3)
    chosen = torch.tensor([keys.index(owner) for owner in owners], device=tensor.device)
    return tensor.index_select(-3, chosen)


def _places(part: Part, axis: Axis) -> list[int]:
    """Which places along an axis are here; of an axis of several factors, counted over all of them."""
    found = [0]
    for factor in axis:
        found = [place * part.whole(factor) + here for place in found for here in range(*part.span(factor))]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Causal:
    """A mask by which a query meets the keys up to its own place, or a window of them."""

    queries: Factor
    keys: Factor
    window: int | None = None

    def options(self, part: Part, device: torch.device) -> dict[str, Any]:
        """What PyTorch's attention is told of the mask."""
        here, there = part.span(self.queries), part.span(self.keys)
        if here == there and (self.window is None or self.window >= there[1] - there[0]):
            return {"is_causal": True}
        late = torch.arange(*here, device=device)[:, None] - torch.arange(*there, device=device)[None, :]
        seen = late >= 0 if self.window is None else (late >= 0) & (late < self.window)
        return {"attn_mask": seen}


def find_causal(reading: Reading, node: Node, mask: torch.Tensor | None) -> Causal | None:
    """The mask of an attention if it is causal, stated or as a constant of trues and falses."""
    given = arguments(node)
    queries = leaves(reading.axes[given["query"]][-2])
    keys = leaves(reading.axes[given["key"]][-2])
    if len(queries) != 1 or len(keys) != 1:
        return None
    if given["is_causal"]:
        return Causal(queries=queries[0], keys=keys[0])
    if mask is None or mask.dtype != torch.bool or mask.numel() != queries[0].size * keys[0].size:
        return None
    flat = mask.reshape(queries[0].size, keys[0].size)
    window = int(flat[-1].sum())
    late = torch.arange(flat.shape[0])[:, None] - torch.arange(flat.shape[1])[None, :]
    if not torch.equal(flat, (late >= 0) & (late < window)):
        return None
    return Causal(queries=queries[0], keys=keys[0], window=window if window < flat.shape[1] else None)
