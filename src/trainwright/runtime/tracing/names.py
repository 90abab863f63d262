"""Names for dims: what each factor is in a model, by how it is used."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Node

from trainwright.runtime.tracing.axes import Reading
from trainwright.runtime.tracing.blocks import Spot
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.factors import Axis, Factor, all_leaves, leaves, root
from trainwright.runtime.tracing.groups import class_axis, original, source_of
from trainwright.runtime.tracing.nodes import op_name, operand

_KEYS = {"seq": "seq_kv"}
_OTHER = "_other"  # after the name of a dim that is met twice


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The name of every factor in each block."""

    blocks: Mapping[Spot, Mapping[Factor, str]]

    def of(self, spot: Spot, factors: Sequence[Factor]) -> tuple[str, ...]:
        """The names of factors in a block."""
        return tuple(self.blocks[spot][factor] for factor in factors)


def name_factors(reading: Reading, drafts: Sequence[Draft], inputs: Sequence[Node]) -> Names:
    """Names for the dims of all operators."""
    roles = _roles(reading, drafts, inputs)
    found: dict[Spot, dict[Factor, str]] = {}
    for spot in sorted({draft.group.spot for draft in drafts}):
        inside = [draft for draft in drafts if draft.group.spot == spot]
        found[spot] = _block_names(inside, roles)
    return Names(blocks=found)


def _roles(reading: Reading, drafts: Sequence[Draft], inputs: Sequence[Node]) -> dict[Factor, str]:
    roles: dict[Factor, str] = {}
    given = {factor for node in inputs for factor in all_leaves(reading.axes[node])}
    _add(roles, _input_roles(reading, inputs))
    _add(roles, (each for draft in drafts for each in _node_roles(reading, draft)))
    _add(roles, _stream_roles(drafts))
    _add(roles, _second_roles(reading, roles))
    _add(roles, (each for draft in drafts for each in _product_roles(draft)))
    _add(roles, _inner_roles(drafts, given))
    _add(roles, _second_roles(reading, roles))
    return roles


def _add(roles: dict[Factor, str], more: "_Named") -> None:
    for factor, name in more:
        roles.setdefault(root(factor), name)


def _second_roles(reading: Reading, roles: Mapping[Factor, str]) -> "_Named":
    """What is met beside a dim under a name of its own is named after that dim."""
    for twin, factor in reading.twins.items():
        for new, old in zip(leaves((twin,)), leaves((factor,)), strict=True):
            if old in roles:
                yield new, _KEYS.get(roles[old], f"{roles[old]}{_OTHER}")


_Named = Iterator[tuple[Factor, str]]


def _input_roles(reading: Reading, inputs: Sequence[Node]) -> _Named:
    """Samples are the first axis of every input, tokens the second one of tokens."""
    for node in inputs:
        axes = [leaves(axis) for axis in reading.axes[node]]
        if axes and len(axes[0]) == 1:
            yield axes[0][0], "batch"
        if len(axes) == 2 and len(axes[1]) == 1 and not node.meta["val"].is_floating_point():
            yield axes[1][0], "seq"


def _node_roles(reading: Reading, draft: Draft) -> _Named:
    for node in draft.group.nodes:
        name = op_name(node)
        if name == "scaled_dot_product_attention":
            yield from _attention_roles(reading, node)
        elif name in ("cross_entropy_loss", "cross_entropy_each", "likelihood_each"):
            tokens = len(reading.axes[source_of(operand(node, 0))]) > 2
            yield from _single(leaves(class_axis(reading, node)), "vocab" if tokens else "classes")
        elif name == "mixture":
            experts = reading.axes[operand(node, 2)]
            for axis, role in zip(experts, ("experts", "expert_ffn", "hidden"), strict=True):
                yield from _single(leaves(axis), role)
        elif name == "embedding":
            table = reading.axes[operand(node, 0)]
            fixed = original(operand(node, 1)).meta.get("role") == "constant"
            yield from _single(leaves(table[0]), "positions" if fixed else "vocab")
            yield from _single(leaves(table[1]), "hidden")


def _single(axis: Axis, name: str) -> _Named:
    if len(axis) == 1:
        yield axis[0], name


def _attention_roles(reading: Reading, node: Node) -> _Named:
    query, key, value = (reading.axes[operand(node, place)] for place in range(3))
    if len(query) > 3:
        yield from _single(leaves(query[-3]), "heads")
        yield from _single(leaves(key[-3]), "kv_heads")
    yield from _single(leaves(query[-1]), "head_dim")
    yield from _single(leaves(value[-1]), "v_dim")
    yield from _single(leaves(query[-2]), "seq")
    if root(leaves(key[-2])[0]) not in {root(twin) for twin in reading.twins}:
        yield from _single(leaves(key[-2]), "seq_enc")


def _stream_roles(drafts: Sequence[Draft]) -> _Named:
    """What layers hand on: samples, tokens and a hidden vector."""
    for draft in drafts:
        if draft.group.spot.path and draft.outputs and draft.group.kind == "norm":
            order = draft.order[draft.outputs[0]]
            if len(order) == 3:
                yield order[1], "seq"
            yield order[-1], "hidden"


def _product_roles(draft: Draft) -> _Named:
    """Two tensors that meet for each sample and some more are queries and keys, or scores and values."""
    if draft.group.kind != "product":
        return
    one, other = (set(draft.order[node]) for node in draft.inputs)
    for factor in draft.order[draft.outputs[0]]:
        if factor in one & other:
            yield factor, "heads"
        elif factor in other:
            yield factor, "v_dim"
    for factor in draft.contracted:
        yield factor, "head_dim"


def _inner_roles(drafts: Sequence[Draft], given: set[Factor]) -> _Named:
    """What one product of a block makes and another sums over is the width of a feed-forward part."""
    readers = Counter(original(node) for draft in drafts for node in draft.weights)
    products = [
        draft
        for draft in drafts
        if draft.group.kind == "matmul" and all(readers[original(node)] == 1 for node in draft.weights)
    ]
    summed = {(factor, draft.group.spot) for draft in products for factor in draft.contracted}
    for draft in products:
        for node in draft.outputs:
            factor = draft.order[node][-1]
            inner = (factor, draft.group.spot) in summed and factor not in given
            yield factor, "ffn" if inner else "width"


def _block_names(drafts: Sequence[Draft], roles: Mapping[Factor, str]) -> dict[Factor, str]:
    """A name for each factor of a block: its role, numbered where another size or dim has that name."""
    beside: dict[Factor, set[Factor]] = {}
    for draft in drafts:
        for factor in draft.factors:
            beside.setdefault(factor, set()).update(draft.factors)
    found: dict[Factor, str] = {}
    sizes: dict[str, int] = {}
    for draft in drafts:
        for node in (*draft.inputs, *draft.weights, *draft.outputs):
            for factor in draft.order[node]:
                if factor not in found:
                    found[factor] = _free_name(factor, roles.get(factor, "width"), found, beside, sizes)
                    sizes[found[factor]] = factor.size
    return found


def _free_name(
    factor: Factor,
    role: str,
    found: Mapping[Factor, str],
    beside: Mapping[Factor, set[Factor]],
    sizes: Mapping[str, int],
) -> str:
    taken = {found[each] for each in beside[factor] if each in found}
    number = 1
    while True:
        name = role if number == 1 else f"{role}_{number}"
        if name not in taken and sizes.get(name, factor.size) == factor.size:
            return name
        number += 1
