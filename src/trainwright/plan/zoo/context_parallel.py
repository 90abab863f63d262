"""Context parallelism: every operator split on tokens; what attention does about the keys of others."""

from typing import Any

from trainwright.errors import UnknownName
from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import CP_KINDS
from trainwright.plan.zoo.structured import REST, structured


def context_parallel(
    graph: Graph, devices: int, batch: int, *, cp: int = REST, kind: str = "ring", **knobs: Any
) -> Plan:
    """Keys and values go round a `ring` while attention works (Liu et al., 2023, arXiv 2310.01889), or an
    `allgather` brings all of them first, or an all-to-all trades the split on tokens for one on heads around
    attention and back (`ulysses`; Jacobs et al., 2023, arXiv 2309.14509).
    """
    if kind not in CP_KINDS:
        raise UnknownName("context-parallel kind", kind, CP_KINDS)
    return structured(graph, devices, batch, cp=cp, cp_kind=kind, **knobs)
