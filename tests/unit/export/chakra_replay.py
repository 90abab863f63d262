"""Traces of all ranks played together, as ASTRA-sim plays them, from what their files say alone.

A rank does one computation, one collective or send, and one copy each way at a time; a receive takes none of
these places. Of what is ready, the lowest number is first. A collective begins when all of its group have
come to it, a message when both ends have; each takes the time that its node says.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Any

from tests.unit.export.chakra_schema import attributes

COMP, SEND, RECV, COLL = 4, 5, 6, 7
LANES = {2: "load", 3: "store", COMP: "compute", SEND: "network", COLL: "network"}


class Rank:
    """What one rank still has to do."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.waits = {node.id: len({*node.data_deps, *node.ctrl_deps}) for node in nodes}
        self.next: dict[int, list[int]] = {}
        for node in nodes:
            for before in {*node.data_deps, *node.ctrl_deps}:
                self.next.setdefault(before, []).append(node.id)
        self.ready = sorted(number for number, count in self.waits.items() if not count)
        self.busy = dict.fromkeys(LANES.values(), False)
        self.done = 0

    def begin(self) -> Iterator[Any]:
        """The nodes that begin now."""
        for number in sorted(self.ready):
            node = self.nodes[number]
            lane = LANES.get(node.type)
            if lane and self.busy[lane]:
                continue
            if lane:
                self.busy[lane] = True
            self.ready.remove(number)
            yield node

    def end(self, node: Any) -> None:
        """Let go of what a node held up."""
        lane = LANES.get(node.type)
        if lane:
            self.busy[lane] = False
        self.done += 1
        for number in self.next.get(node.id, ()):
            self.waits[number] -= 1
            if not self.waits[number]:
                self.ready.append(number)


def replay(traces: Mapping[int, list[Any]], groups: Mapping[str, list[int]]) -> tuple[int, int]:
    """Nodes that never ended, which is 0 if nothing waits for ever, and microseconds until the last did."""
    ranks = {rank: Rank(nodes) for rank, nodes in traces.items()}
    met: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}  # what has begun and waits for others
    events: list[tuple[int, int, int, Any]] = []
    now, count = 0, 0
    asked = [*ranks]
    while asked or events:
        for rank in asked:
            for node in ranks[rank].begin():
                for each, ended in _meet(met, groups, rank, node):
                    count += 1
                    heapq.heappush(events, (now + ended.duration_micros, count, each, ended))
        if not events:
            break
        now, _, rank, node = heapq.heappop(events)
        ranks[rank].end(node)
        asked = [rank]
    return sum(len(each.nodes) - each.done for each in ranks.values()), now


def _meet(
    met: dict[tuple[Any, ...], list[tuple[int, Any]]], groups: Mapping[str, list[int]], rank: int, node: Any
) -> list[tuple[int, Any]]:
    """The nodes whose time runs from now on, because this one has come to all that it needs."""
    if node.type not in (SEND, RECV, COLL):
        return [(rank, node)]
    about = attributes(node)
    if node.type == COLL:
        key, needed = ("group", about["pg_name"]), len(groups[about["pg_name"]])
    else:
        key, needed = tuple(about[name] for name in ("comm_src", "comm_dst", "comm_tag")), 2
    met.setdefault(key, []).append((rank, node))
    return met.pop(key) if len(met[key]) == needed else []
