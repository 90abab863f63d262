"""What attention computes, in numbers: the mean of values, weighted by how queries meet keys."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from trainwright.model.graph import query_dim
from trainwright.program.call import Back, Call, Gradients
from trainwright.program.labelled import Array, Part, Places, contract, cut


def _scores(call: Call) -> tuple[Part, Part, Part, Array]:
    """Queries, the keys and values that each of its heads meets, and the weights of their mean."""
    op = call.op
    queries, keys, values = (call.given(index) for index in range(3))
    heads = dict(zip(queries.dims, keys.dims, strict=True))
    keys, values = (_for_heads(part, queries, heads, call.sizes) for part in (keys, values))
    score = contract([queries, keys], (*queries.dims[:-1], op.contracted[0])).values
    score = score / np.sqrt(call.sizes[queries.dims[-1]])
    query, key = queries.at[query_dim(op)], keys.at[op.contracted[0]]
    axis = queries.dims.index(query_dim(op))
    late = query[:, None] - key[None, :]
    seen = (late >= 0 if op.causal else late == late) & (late < (op.window or 1 << 30))
    shape = [1] * (score.ndim - 1)
    shape[axis] = len(query)
    score = np.where(seen.reshape(*shape, len(key)), score, -np.inf)
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    return queries, keys, values, weight / weight.sum(axis=-1, keepdims=True)


def _for_heads(part: Part, queries: Part, heads: Mapping[str, str], sizes: Mapping[str, int]) -> Part:
    """Keys or values repeated for the query heads that share them."""
    for own, dim in enumerate(part.dims):
        wide = next((q for q, k in heads.items() if k == dim and q == "heads"), None)
        if wide is None or wide == dim:
            continue
        wanted = queries.at[wide] * sizes[dim] // sizes[wide]
        found = cut(part, {dim: wanted})
        names = [wide if number == own else each for number, each in enumerate(part.dims)]
        at = dict(zip(names, found.at.values(), strict=True)) | {wide: queries.at[wide]}
        return Part(values=found.values, at=at)
    return part


def attention(call: Call) -> tuple[Part, ...]:
    queries, _, values, weight = _scores(call)
    mean = Part(values=weight, at=_score_places(call, queries, values))
    return (contract([mean, values], call.op.output.dims),)


def _score_places(call: Call, queries: Part, values: Part) -> dict[str, Places]:
    keys = call.op.contracted[0]
    return {**{dim: queries.at[dim] for dim in queries.dims[:-1]}, keys: values.at[keys]}


def attention_back(call: Call, gradients: Gradients) -> Back:
    (gradient,) = gradients
    if gradient is None:
        return Back(inputs=(None,) * 3)
    queries, keys, values, weight = _scores(call)
    places = _score_places(call, queries, values)
    mean = Part(values=weight, at=places)
    flows = contract([gradient, values], tuple(places)).values
    flows = weight * (flows - np.sum(flows * weight, axis=-1, keepdims=True))
    score = Part(values=flows / np.sqrt(call.sizes[queries.dims[-1]]), at=places)
    return Back(
        inputs=(
            contract([score, keys], queries.dims),
            _shared_back(contract([score, queries], keys.dims), call, 1),
            _shared_back(contract([mean, gradient], values.dims), call, 2),
        )
    )


def _shared_back(flows: Part, call: Call, index: int) -> Part:
    """The gradient of keys or values: the sum over the query heads that share them."""
    part = call.given(index)
    if flows.dims == part.dims:
        return flows
    axis = next(n for n, (a, b) in enumerate(zip(flows.dims, part.dims, strict=True)) if a != b)
    wide, dim = flows.dims[axis], part.dims[axis]
    shared = flows.at[wide] * call.sizes[dim] // call.sizes[wide]
    total = np.zeros_like(part.values)
    for place, owner in enumerate(shared):
        here = [slice(None)] * total.ndim
        here[axis] = int(np.searchsorted(part.at[dim], owner))  # type: ignore[call-overload]
        total[tuple(here)] += np.take(flows.values, place, axis=axis)
    return replace(part, values=total)
