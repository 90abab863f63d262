"""Values that cross from block to block, and the names under which they do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch.fx import Node

from trainwright.model.graph import Op
from trainwright.runtime.tracing.blocks import Spot
from trainwright.runtime.tracing.draft import Draft
from trainwright.runtime.tracing.groups import original


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Names of what blocks hand on: the one value that goes to the next block is the stream.

    Other values have a name of their own, under which any later block finds them.
    """

    makers: Mapping[Node, Spot]
    main: Mapping[Spot, Node]  # of each block, what the next one reads of it
    following: Mapping[Spot, Spot]
    others: Mapping[Node, str]
    name: str

    def read_as(self, draft: Draft, inputs: Mapping[Node, str]) -> dict[Node, str]:
        """The names by which an operator reads inputs of the module and values of other blocks."""
        found: dict[Node, str] = {}
        spot = draft.group.spot
        for node in map(original, draft.inputs):
            if node in inputs:
                found[node] = inputs[node]
            elif self.makers[node] != spot:
                main = self.main.get(self.makers[node]) is node and self.following[self.makers[node]] == spot
                found[node] = self.name if main else self.others[node]
        return found

    def handed_on(
        self, spot: Spot, ops: Sequence[Op], values: Mapping[Node, str]
    ) -> tuple[tuple[str, str], ...]:
        """What a block states that it hands on; nothing if that is just what its last operator writes."""
        pairs = [(self.name, values[self.main[spot]])] if spot in self.main else []
        pairs += [(name, values[node]) for node, name in self.others.items() if self.makers[node] == spot]
        return () if pairs == [("stream", ops[-1].output.name)] or not pairs else tuple(pairs)


def build_streams(drafts: Sequence[Draft], inputs: Iterable[str]) -> Streams:
    """The streams between the blocks of a model."""
    makers = {node: draft.group.spot for draft in drafts for node in draft.outputs}
    spots = sorted({draft.group.spot for draft in drafts})
    following = dict(pairwise(spots))
    readers: dict[Node, set[Spot]] = {}
    for draft in drafts:
        for node in map(original, draft.inputs):
            if node in makers and makers[node] != draft.group.spot:
                readers.setdefault(node, set()).add(draft.group.spot)
    main = {}
    for node, spots_ in readers.items():
        if following[makers[node]] in spots_ and node.meta["val"].is_floating_point():
            main[makers[node]] = node
    others = {
        node: f"{makers[node].name}{makers[node].number}.{node.name}"
        for node, found in readers.items()
        if main.get(makers[node]) is not node or found != {following[makers[node]]}
    }
    name = "stream" if "stream" not in set(inputs) else "stream.hidden"
    return Streams(makers=makers, main=main, following=following, others=others, name=name)
