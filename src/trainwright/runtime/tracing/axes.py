"""The factors of the axes of every tensor in a captured graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from torch.fx import Graph, Node

from trainwright.runtime.tracing.factors import (
    Axes,
    Axis,
    Conflict,
    Factor,
    Factors,
    all_leaves,
    leaves,
    root,
)
from trainwright.runtime.tracing.nodes import is_tensor, op_name, shape

WHOLE = "whole"  # where a node's meta data says that it has no rule
Rule = Callable[["Reading", Node], "Axes | tuple[Axes, ...] | None"]


def rename(tensor: object) -> object:
    """A tensor as it is; in a graph it marks where the reader has other names for the axes."""
    return tensor


@dataclass(slots=True, kw_only=True)
class Reading:
    """What is known about axes, as the nodes are read over and over until nothing new is found.

    `frozen` are the axes that a node mixes, so that its parts along them do not make up its result.
    `notes` say why a node has no rule. `twins` are second names for the factors of tensors that are met
    twice in one product, such as the tokens of keys beside those of queries.
    """

    graph: Graph
    factors: Factors = field(default_factory=Factors)
    axes: dict[Node, Axes] = field(default_factory=dict)
    several: dict[Node, tuple[Axes, ...]] = field(default_factory=dict)
    frozen: dict[Node, tuple[Axis, ...]] = field(default_factory=dict)
    notes: dict[Node, str] = field(default_factory=dict)
    twins: dict[Factor, Factor] = field(default_factory=dict)  # a second name, and what it is one of
    cut_from: dict[Factor, Axis] = field(default_factory=dict)  # pieces of an axis, and that axis
    rejoined: list[Factor] = field(default_factory=list)  # axes whose pieces are put together again
    renamed: dict[Node, list[tuple[Factor, Factor]]] = field(default_factory=dict)
    _apart: set[Node] = field(default_factory=set)
    _pieces: dict[Node, tuple[Axis, ...]] = field(default_factory=dict)

    def read_all(self, rule_of: Callable[[Node], Rule]) -> None:
        """Read every node until nothing new is found."""
        before = -1
        while before != self.factors.changes + len(self.renamed) + len(self.notes):
            before = self.factors.changes + len(self.renamed) + len(self.notes)
            for node in list(self.graph.nodes):
                self._read(node, rule_of)

    def new_axes(self, node: Node) -> Axes:
        """Axes of one new factor each; the same ones every time."""
        return self.axes.get(node) or tuple(self.factors.new_axis(size) for size in shape(node))

    def freeze(self, node: Node, axes: Sequence[Axis]) -> None:
        """State that a node mixes these axes."""
        self.frozen[node] = tuple(axes)

    def new_pieces(self, node: Node, sizes: Sequence[int]) -> tuple[Axis, ...]:
        """New axes of the given sizes for a node's several results; the same ones every time."""
        if node not in self._pieces:
            self._pieces[node] = tuple(self.factors.new_axis(int(size)) for size in sizes)
        return self._pieces[node]

    def fit(self, node: Node, source: Node, axis: int, wanted: Axis) -> Node:
        """Let an axis of a source be the wanted one; the source as the node reads it from now on.

        That is itself, or under another name where two axes cannot be the same. An axis of size 1 fits all.
        """
        own = self.axes[source][axis]
        if not own or not wanted:
            return source
        if self.factors.can_unify(own, wanted):
            self.factors.unify(wanted, own)
            return source
        other = self.other_name(node, source, axis)
        self.factors.unify(wanted, self.axes[other][axis])
        return other

    def other_name(self, node: Node, source: Node, axis: int) -> Node:
        """The source as the node reads it from now on, with other factors along one axis."""
        value, path = _origin(source)
        with self.graph.inserting_before(node):
            first: Node = self.graph.call_function(rename, (value,))
            first.meta |= value.meta
            self.renamed[first] = [(each, self._twin(each)) for each in leaves(self.axes[source][axis])]
            self.axes[first] = self._renamed_axes(first)
            read = first
            for view in path:
                read = self.graph.node_copy(view, lambda each, at=read: at)  # type: ignore[misc]
                self.axes[read] = self._replaced(self.axes[view], first)
        node.replace_input_with(source, read)
        return read

    def _twin(self, factor: Factor) -> Factor:
        twin = Factor(size=factor.size)
        self.twins[twin] = factor
        return twin

    def _renamed_axes(self, node: Node) -> Axes:
        return self._replaced(self.axes[node.all_input_nodes[0]], node)

    def _replaced(self, axes: Axes, node: Node) -> Axes:
        """Axes with a renamed node's new factors in the place of the old ones."""
        pairs = [pair for old, new in self.renamed[node] for pair in self.factors.aligned((old,), (new,))]
        swap = {id(root(old)): new for old, new in pairs}
        return tuple(tuple(swap.get(id(each), each) for each in leaves(axis)) for axis in axes)

    def _read(self, node: Node, rule_of: Callable[[Node], Rule]) -> None:
        if node in self.renamed:
            self.axes[node] = self._renamed_axes(node)
        elif node.op == "call_function" or is_tensor(node):
            found = self._by_rule(node, rule_of)
            if is_tensor(node):
                self.axes[node] = cast(Axes, found)
                self._keep_apart(node)
            else:
                self.several[node] = cast(tuple[Axes, ...], found)

    def _by_rule(self, node: Node, rule_of: Callable[[Node], Rule]) -> "Axes | tuple[Axes, ...]":
        if node in self.notes:
            return self._opaque(node)
        try:
            found = rule_of(node)(self, node)
        except Conflict:
            return self._noted(node, "its tensors cannot be split in one way")
        return self._noted(node, "there is no rule for it") if found is None else found

    def _noted(self, node: Node, why: str) -> "Axes | tuple[Axes, ...]":
        self.notes[node] = why
        node.meta[WHOLE] = True
        return self._opaque(node)

    def _opaque(self, node: Node) -> "Axes | tuple[Axes, ...]":
        """New axes for an operation without a rule, which is kept whole."""
        sources = [self.axes[each] for each in node.all_input_nodes if each in self.axes]
        if not is_tensor(node):
            made = self.several.get(node) or tuple(map(self._new_axes_of, node.meta["val"]))
            self.freeze(node, [axis for axes in (*sources, *made) for axis in axes])
            return made
        own = self.new_axes(node)
        if own and sources and sources[0]:
            self._keep_samples(sources[0][0], own[0])
        self.freeze(node, [axis for axes in (*sources, own) for axis in axes])
        return own

    def _new_axes_of(self, value: object) -> Axes:
        return tuple(self.factors.new_axis(int(size)) for size in getattr(value, "shape", ()))

    def _keep_samples(self, read: Axis, made: Axis) -> None:
        """Let the first axis of a result be that of what it is made from, if it is as long: samples."""
        alike = len(leaves(read)) == 1 and [each.size for each in leaves(read)] == [
            each.size for each in made
        ]
        if alike and self.factors.can_unify(read, made):
            self.factors.unify(read, made)

    def _keep_apart(self, node: Node) -> None:
        if node in self._apart:
            return
        self._apart.add(node)
        factors = all_leaves(self.axes[node])
        if len(set(factors)) == len(factors):
            self.factors.keep_apart(self.axes[node])
        else:
            del self.axes[node]
            self.axes[node] = cast(Axes, self._noted(node, "it has the same axis twice"))


VIEWS = frozenset(
    {"reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose", "t", "expand",
     "movedim", "swapaxes", "numpy_T"}
)  # fmt: skip


def is_view(node: Node) -> bool:
    """Whether a node only arranges what another has made, in a way that has a rule."""
    return op_name(node) in VIEWS and WHOLE not in node.meta


def _origin(node: Node) -> tuple[Node, list[Node]]:
    """What has made a tensor, and the views on the way to it."""
    path: list[Node] = []
    while is_view(node):
        path.insert(0, node)
        node = node.all_input_nodes[0]
    return node, path
