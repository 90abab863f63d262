"""What a program sends from island to island, over the links that are slow."""

from collections.abc import Iterator, Sequence

import numpy as np

from trainwright.plan.mapping import Ints, positions
from trainwright.program.lower import Program
from trainwright.program.moves import ACROSS, WITHIN, groups
from trainwright.program.step import Step
from trainwright.program.traffic import sent_bytes

_SENT = (*WITHIN, *ACROSS, "exchange")
Members = tuple[Sequence[int], Sequence[int]]  # places of devices that send, and of those that receive


def crossing_bytes(program: Program, inside: int) -> float:
    """Bytes of a step that leave an island of `inside` neighbouring places, on average over the islands.

    Collectives are taken to cross as rarely as they can: level by level, so that of a group over k islands
    (k-1)/k of what it reduces or gathers leaves each of them, once or (all-reduce) twice.
    """
    plan = program.plan
    microbatches, routes = plan.microbatches, len(program.routes)
    places = positions(plan.mapping) if plan.mapping else np.arange(plan.devices)
    total = 0.0
    for number, route in enumerate(program.routes):
        runs = len(range(number, microbatches, routes))
        for step in route.steps:
            if step.kind in _SENT and (step.move is not None or step.state):
                times = 1 if step.phase in "PS" else runs
                found = [_placed(each, places) for each in _members(step)]
                total += times * _crossing(program, number, step, found, inside)
    return total / max(-(-plan.devices // inside), 1)


def _placed(members: Members, places: Ints) -> Members:
    """Where devices stand on the network, by their numbers."""
    senders, receivers = members
    return places[list(senders)].tolist(), places[list(receivers)].tolist()


def _crossing(program: Program, route: int, step: Step, members: Sequence[Members], inside: int) -> float:
    """Bytes that leave all islands together, in one run of a step."""
    found = [each for each in members if _islands((*each[0], *each[1]), inside) > 1]
    if not found:
        return 0.0
    own = sent_bytes(program, route, step)
    return sum(_leaving(step.kind, each, own, inside) for each in found)


def _members(step: Step) -> Iterator[Members]:
    """Devices that send, and those that receive, of each group."""
    if step.state:
        yield from ((group, ()) for group in step.groups)
    elif step.move is not None and step.kind == "exchange":
        yield step.move.source.mesh.devices, step.move.target.mesh.devices
    elif step.move is not None:
        yield from groups(step.move)


def _islands(places: Sequence[int], inside: int) -> int:
    return len(np.unique(np.asarray(places) // inside))


def _leaving(kind: str, members: Members, own_bytes: float, inside: int) -> float:
    """Bytes of one group that leave islands, where each device sends `own_bytes`."""
    senders, receivers = members
    if kind in (*ACROSS, "permute"):
        homes = {place // inside for place in receivers}
        return sum(own_bytes for place in senders if homes - {place // inside})
    together = sorted({*senders, *receivers})
    count, islands = len(together), _islands(together, inside)
    if kind == "all_to_all":  # to each of the others alike
        return own_bytes * sum(
            sum(other // inside != place // inside for other in together) / (count - 1) for place in together
        )
    if kind == "exchange":
        return own_bytes * count * (islands - 1) / islands
    return own_bytes * count / (count - 1) * (islands - 1)
