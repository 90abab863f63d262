"""What a program sends: its collectives, counted and weighed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainwright.cost.state import StateWidths
from trainwright.program.bundles import Bundle
from trainwright.program.lower import Program, Route
from trainwright.program.moves import ACROSS, WITHIN
from trainwright.program.state import widths
from trainwright.program.step import Step, Weight

Per = Literal["microbatch", "step", "round"]
_SENT = (*WITHIN, *ACROSS, "exchange", "copy")
_PASSES = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0}  # a device sends all but its own part


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Collectives of one kind and cause, of a microbatch on its way through the model, of a step, or of a
    round of islands.

    `count` is of all stages, `sent_bytes` what the device that sends most sends in them. `names` are the
    tensors of exchanges: moves for which no collective was found.
    """

    kind: str
    cause: str
    per: Per
    count: int
    sent_bytes: float
    names: tuple[str, ...] = ()


Row = tuple[Step, object, float]  # a step, the collective that it is a piece of, bytes that a device sends


def traffic(program: Program) -> tuple[Traffic, ...]:
    """What the program sends: of a microbatch on the first route, and of a step; most bytes first."""
    found = [*_sums(program, "microbatch", _microbatch_rows(program))]
    found += _sums(program, "step", _step_rows(program))
    return tuple(sorted(found, key=lambda each: (each.per, -each.sent_bytes)))


def _sums(program: Program, per: Per, rows: Iterable[Row]) -> Iterator[Traffic]:
    together: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        together.setdefault((row[0].kind, row[0].cause), []).append(row)
    for (kind, cause), listed in together.items():
        collectives = {collective: step for step, collective, _ in listed}
        yield Traffic(
            kind=kind, cause=cause, per=per, count=len(collectives), sent_bytes=_most(program, listed),
            names=tuple(each.name for each in collectives.values()) if kind == "exchange" else (),
        )  # fmt: skip


def _most(program: Program, rows: Iterable[Row]) -> float:
    """Bytes of the device that sends most."""
    by_mesh: dict[int, list[Row]] = {}
    for row in rows:
        by_mesh.setdefault(id(row[0].mesh.devices), []).append(row)
    sent = np.zeros(program.plan.devices)
    for listed in by_mesh.values():
        sent[list(listed[0][0].mesh.devices)] += sum(each for _, _, each in listed)
    return float(sent.max())


def _microbatch_rows(program: Program) -> Iterator[Row]:
    route, width = program.routes[0], widths(program.builders[0])
    owners = _owners(route)
    for number, step in enumerate(route.steps):
        if step.kind in _SENT and step.phase not in "PS":
            yield step, number, _state_bytes(step, owners, width) if step.state else step.bytes


def _step_rows(program: Program) -> Iterator[Row]:
    """Pieces of one bucket are one collective."""
    width = widths(program.builders[0])
    for route in program.routes:
        owners = _owners(route)
        for step in route.steps:
            if step.phase in "PS" and step.state:
                yield step, _bucket(step), _state_bytes(step, owners, width)


def _bucket(step: Step) -> object:
    """What the pieces of one collective share; that of weights which stages share is of none of them."""
    inside = set(step.groups[0]) <= set(step.mesh.devices)
    return step.phase, step.stage if inside else -1, step.groups


def sent_bytes(program: Program, route: int, step: Step) -> float:
    """What a device that takes part in a step sends, of the route's steps."""
    if not step.state:
        return step.bytes
    return _state_bytes(step, _owners(program.routes[route]), widths(program.builders[0]))


def _owners(route: Route) -> dict[Weight, Bundle]:
    return {weight: bundle for bundle in route.bundles for weight in bundle.weights}


def _state_bytes(step: Step, owners: dict[Weight, Bundle], width: StateWidths) -> float:
    """What a device sends of the weights that a step gathers, or of the gradients that it sums."""
    bundles = list({id(owners[weight]): owners[weight] for weight in step.state}.values())
    elements = sum(bundle.elements for bundle in bundles)
    if step.phase == "S" and step.kind == "all_reduce" and step.cause == "dp":
        elements /= len(bundles[0].sharded("gradients"))  # each has summed its shard before
    ranks = len(step.groups[0])
    size = elements * (width.weight if step.kind == "all_gather" else width.reduced)
    return _PASSES[step.kind] * (ranks - 1) / ranks * size * (step.span[1] - step.span[0])
