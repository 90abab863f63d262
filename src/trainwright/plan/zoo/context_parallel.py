"""Context parallelism: every operator split on tokens; what attention does about the keys of others."""

from typing import Any

from trainwright.errors import UnknownName
from trainwright.model.flow import Instance
from trainwright.model.graph import Graph, Op
from trainwright.plan.expand import Axis, op_axes
from trainwright.plan.plan import Plan
from trainwright.plan.rules import effect
from trainwright.plan.strategy import CP_KINDS, Strategy
from trainwright.plan.zoo.structured import REST, fill, structured

ULYSSES = "ulysses"


def context_parallel(
    graph: Graph, devices: int, batch: int, *, cp: int = REST, kind: str = "ring", **knobs: Any
) -> Plan:
    """Keys and values go round a `ring` while attention works (Liu et al., 2023, arXiv 2310.01889), or an
    `allgather` brings all of them first, or an all-to-all trades the split on tokens for one on heads around
    attention and back (`ulysses`; Jacobs et al., 2023, arXiv 2309.14509).
    """
    if kind not in (*CP_KINDS, ULYSSES):
        raise UnknownName("context-parallel kind", kind, (*CP_KINDS, ULYSSES))
    if kind != ULYSSES:
        return structured(graph, devices, batch, cp=cp, cp_kind=kind, **knobs)
    knobs |= {"cp": cp, "cp_kind": "allgather"}
    strategy = fill(devices, **knobs)
    return structured(graph, devices, batch, axes=lambda instance: _axes(strategy, instance), **knobs)


def _axes(strategy: Strategy, instance: Instance) -> tuple[Axis, ...]:
    """Tensor parallelism outside context parallelism, so that heads are dealt twice in one order."""
    by_dim = op_axes(strategy, instance.op)
    if instance.op.region == "experts":
        return by_dim
    inner = _inner(strategy, instance.op)
    tokens = ("heads" if instance.op.kind == "attention" else _legal(instance.op, "seq"), strategy.cp)
    wanted = ((_legal(instance.op, "batch"), strategy.dp), inner, tokens)
    return tuple((dim, parts) for dim, parts in wanted if parts > 1)


def _inner(strategy: Strategy, op: Op) -> Axis:
    found = [dim for dim, parts in op_axes(strategy, op) if dim not in ("", "batch", "seq") and parts > 1]
    return (found[0] if found else "seq" if strategy.sp else "", strategy.tp)


def _legal(op: Op, dim: str) -> str:
    return dim if effect(op, dim) in ("shards", "sums") else ""
