"""Which nodes together are one operator: those that the catalog's models have as one."""

from collections.abc import Iterator, Mapping, Sequence

from torch.fx import Node

from trainwright.model.graph import Kind
from trainwright.runtime.tracing.axes import Reading, is_view
from trainwright.runtime.tracing.blocks import Spot
from trainwright.runtime.tracing.factors import Factor, all_leaves, leaves
from trainwright.runtime.tracing.groups import (
    PRODUCTS,
    Group,
    contracted,
    kind_of,
    operands,
    original,
    source_of,
    sources,
)
from trainwright.runtime.tracing.nodes import arguments, module_path, op_name, operand


def merge(reading: Reading, nodes: Sequence[Node], spots: Mapping[Node, Spot]) -> list[Group]:
    """The operators of a model, from its nodes in order."""
    makers = [node for node in nodes if node.op == "call_function" and original(node) is node]
    groups: dict[Node, Group] = {}
    for node in makers:
        kind, frozen = kind_of(reading, node), set(all_leaves(reading.frozen.get(node, ())))
        if kind == "elementwise" and op_name(node) in PRODUCTS:
            frozen.update(contracted(reading, node))
        groups[node] = Group(kind=kind, nodes=[node], spot=spots[node], frozen=frozen)
    masks = _Masks(makers)
    _merge_norms(groups, makers, masks)
    _merge_tables(groups, makers, masks)
    steady = _steady(makers)
    for node in makers:
        _merge_soft(reading, groups, node, masks, steady)
    _merge_products(groups, makers, masks)
    _merge_rotations(groups, makers, masks)
    return _ordered(groups)


class _Masks:
    """Which nodes come before and after each other, as bits."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.bit = {node: 1 << place for place, node in enumerate(nodes)}
        self.before: dict[Node, int] = {}
        self.after: dict[Node, int] = dict.fromkeys(nodes, 0)
        for node in nodes:
            self.before[node] = 0
            for each in _read(node):
                self.before[node] |= self.before[each] | self.bit[each]
        for node in reversed(nodes):
            for each in _read(node):
                self.after[each] |= self.after[node] | self.bit[node]

    def closed(self, nodes: Sequence[Node]) -> bool:
        """Whether no path between two of the nodes leads outside."""
        inside = before = after = 0
        for node in nodes:
            inside |= self.bit[node]
            before |= self.before[node]
            after |= self.after[node]
        return not before & after & ~inside


def _read(node: Node) -> Iterator[Node]:
    for each in sources(node):
        made = original(each)
        if made.op == "call_function":
            yield made


def _join(groups: dict[Node, Group], parts: Sequence[Group], kind: Kind, masks: _Masks) -> bool:
    """Make one group of several, if no path between them leads outside."""
    distinct = list(dict.fromkeys(parts))
    nodes = sorted((node for part in distinct for node in part.nodes), key=masks.bit.__getitem__)
    if len(distinct) < 2 or not masks.closed(nodes):
        return False
    frozen = set().union(*(part.frozen for part in distinct))
    whole = Group(kind=kind, nodes=nodes, spot=distinct[0].spot, frozen=frozen)
    groups.update(dict.fromkeys(nodes, whole))
    return True


def _merge_norms(groups: dict[Node, Group], makers: Sequence[Node], masks: _Masks) -> None:
    """Modules that are nothing but element-wise work around a mean, such as an RMS norm."""
    modules: dict[tuple[str, int], list[Node]] = {}
    for node in makers:
        modules.setdefault((module_path(node), groups[node].spot.number), []).append(node)
    for (path, _), nodes in modules.items():
        names = {op_name(node) for node in nodes}
        roots = names & {"rsqrt", "sqrt", "std", "pow"}
        if path and "mean" in names and roots and all(groups[node].kind == "elementwise" for node in nodes):
            read = {each for node in nodes for each in _read(node)} - set(nodes)
            if len(read) <= 1:
                _join(groups, [groups[node] for node in nodes], "norm", masks)


def _steady(makers: Sequence[Node]) -> set[Node]:
    """Nodes that are made from weights and constants alone."""
    found: set[Node] = set()
    for node in makers:
        read = [original(each) for each in sources(node)]
        if all(each in found or each.meta.get("role") in ("weight", "constant") for each in read):
            found.add(node)
    return found


def _merge_soft(
    reading: Reading, groups: dict[Node, Group], node: Node, masks: _Masks, steady: set[Node]
) -> None:
    """Join element-wise work with the element-wise work that it reads, where both can be split alike."""
    for each in sources(node):
        own = groups[node]
        if own.kind != "elementwise" or each not in groups:
            continue
        other = groups[each]
        if other is own or other.kind != "elementwise" or other.spot != own.spot:
            continue
        if each in steady and node not in steady and _readers(each) > 1:
            continue  # made from weights alone, and read elsewhere too: a result without the others' dims
        ruled = {_has_rules(reading, part) for part in (own, other)}
        if op_name(node) == "getitem" or (len(ruled) == 1 and _alike(reading, own, other, steady)):
            _join(groups, [other, own], "elementwise", masks)


def _has_rules(reading: Reading, group: Group) -> bool:
    return not any(node in reading.notes for node in group.nodes)


def _alike(reading: Reading, one: Group, other: Group, steady: set[Node]) -> bool:
    """Whether all results in two groups have the same axes, but for those that are mixed."""
    frozen = one.frozen | other.frozen
    if any((each in one.frozen) != (each in other.frozen) for each in _samples(reading)):
        return False  # only one of them needs all samples at once
    shapes = {
        frozenset(each for each in all_leaves(reading.axes[node]) if each not in frozen)
        for part in (one, other)
        for node in part.nodes
        if node in reading.axes and node not in steady
    }
    return len(shapes) <= 1


def _samples(reading: Reading) -> set[Factor]:
    """The factors that samples lie along: the first axis of every input."""
    inputs = [node for node in reading.graph.nodes if node.meta.get("role") == "input"]
    return {factor for node in inputs for factor in leaves(reading.axes[node][0])}


def _merge_tables(groups: dict[Node, Group], makers: Sequence[Node], masks: _Masks) -> None:
    """Rows of several tables that are only added up."""
    for node in makers:
        if op_name(node) == "add" and len(groups[node].nodes) == 1 and arguments(node).get("alpha", 1) == 1:
            read = [each for each in sources(node) if each in groups]
            tables = [groups[each] for each in read]
            once = all(_readers(each) == 1 for each in read)
            if len(read) == 2 and once and all(table.kind == "gather" for table in tables):
                _join(groups, [*tables, groups[node]], "gather", masks)


def _readers(node: Node) -> int:
    """How many nodes read what a node makes, through views."""
    return sum(_readers(user) if is_view(user) else 1 for user in node.users)


def _merge_products(groups: dict[Node, Group], makers: Sequence[Node], masks: _Masks) -> None:
    """Products of one tensor with several weights whose results meet, such as queries, keys and values.

    Those that do not, such as queries and the first product of a parallel FFN, are split along other dims.
    """
    beside: dict[tuple[Node, Spot], list[Group]] = {}
    reach = _reach(groups, makers, masks)
    for node in makers:
        own = groups[node]
        if own.kind != "matmul":
            continue
        others = beside.setdefault((source_of(operands(node)[0]), own.spot), [])
        meets = [each for each in others if any(reach[node] & reach[one] for one in each.nodes)]
        if meets and _join(groups, [meets[0], own], "matmul", masks):
            others.remove(meets[0])
        others.append(groups[node])


def _reach(groups: Mapping[Node, Group], makers: Sequence[Node], masks: _Masks) -> dict[Node, int]:
    """What each node goes into before another product with weights, as bits."""
    found = dict.fromkeys(makers, 0)
    for node in reversed(makers):
        onward = 0 if groups[node].kind == "matmul" else found[node]
        for each in _read(node):
            found[each] |= onward | masks.bit[node]
    return found


def _merge_rotations(groups: dict[Node, Group], makers: Sequence[Node], masks: _Masks) -> None:
    """Element-wise work on queries and keys that one attention reads."""
    for node in makers:
        if groups[node].kind != "attention":
            continue
        pair = [groups.get(original(operand(node, place))) for place in range(2)]
        parts = [each for each in pair if each is not None and each.spot == groups[node].spot]
        if len(parts) == 2 and not _outside(parts[0]) & _outside(parts[1]):
            for kind in ("elementwise", "norm"):
                if all(each.kind == kind for each in parts):
                    _join(groups, parts, kind, masks)


def _outside(group: Group) -> set[Node]:
    """The values and weights that a group reads; a plan may split one reader of them and not the other."""
    read = {original(each) for node in group.nodes for each in sources(node)}
    return {each for each in read if each.meta.get("role") != "constant"} - set(group.nodes)


def _ordered(groups: Mapping[Node, Group]) -> list[Group]:
    """The groups by block, each after those that it reads."""
    found: list[Group] = []
    done: set[Group] = set()

    def visit(each: Group) -> None:
        if each in done:
            return
        done.add(each)
        for node in each.nodes:
            for read in _read(node):
                visit(groups[read])
        found.append(each)

    for each in dict.fromkeys(groups.values()):
        visit(each)
    return sorted(found, key=lambda each: each.spot.number)
