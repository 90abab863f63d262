"""The cheapest chain of moves between two states: a shortest path."""

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from trainwright.program.edges import Edge, edges
from trainwright.program.grid import build_on
from trainwright.program.moves import Move
from trainwright.program.space import Node, Space

# What a chain is charged for each move, so that of equally fast ones the shortest is taken.
_PER_MOVE_S = 1e-12
# One all-reduce is taken instead of a reduce-scatter and an all-gather that are not 1 % faster; and a
# reduce-scatter instead of an all-reduce of which each device keeps a part.
_SHARES = {"all_reduce": 0.99, "reduce_scatter": 0.985}


def cheapest(space: Space) -> tuple[Move, ...] | None:
    """The moves from start to goal that take least time together; none if no chain leads there."""
    start, goal = Node(0, space.grid.start), Node(int(space.across), space.grid.goal)
    best = {start: 0.0}
    came: dict[Node, tuple[Node, Edge]] = {}
    least_s = _least(space)
    ahead = [(0.0, 0.0, start)]
    while ahead:
        _, weight, node = heappop(ahead)
        if node == goal:
            return _moves(space, came, goal)
        if weight > best[node]:
            continue
        for edge in edges(space, node):
            share = _SHARES.get(edge.kind, 1.0)
            total = weight + share * edge.seconds + _PER_MOVE_S
            if total >= best.get(edge.node, inf):
                continue
            least = total + least_s(edge.node)
            if least < best.get(goal, inf):
                best[edge.node] = total
                came[edge.node] = (node, edge)
                heappush(ahead, (least, total, edge.node))
    return None


def _least(space: Space) -> Callable[[Node], float]:
    """A time that the way from a node to the goal cannot undercut: what is missing, over the fastest link."""
    links = space.prices.network.links
    slope = 1.0 / max(link.bytes_per_s for link in links)
    latency_s = min(link.latency_s for link in links)
    wanted = space.own_bytes(space.grid.goal)

    def least_s(node: Node) -> float:
        missing = wanted - space.own_bytes(node.state)
        return missing * slope + latency_s if missing > 0 else 0.0

    return least_s


def _moves(space: Space, came: dict[Node, tuple[Node, Edge]], goal: Node) -> tuple[Move, ...]:
    """The moves that led to the goal, in order."""
    found: list[Move] = []
    node = goal
    while node in came:
        before, edge = came[node]
        found.append(
            Move(
                kind=edge.kind,
                source=build_on(before.state, space.meshes[before.side], space.dims),
                target=build_on(node.state, space.meshes[node.side], space.dims),
                axes=tuple(sorted(edge.axes)),
                sent_bytes=edge.sent_bytes,
                seconds=edge.seconds,
            )
        )
        node = before
    return tuple(reversed(found))
