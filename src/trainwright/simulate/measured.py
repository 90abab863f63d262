"""A timeline from what the devices of a run have seen, in the type that predictions have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainwright.program.entries import LANES, step_label
from trainwright.program.lower import Program
from trainwright.program.moves import LOCAL, groups
from trainwright.program.step import Step
from trainwright.program.table import COMMUNICATION, COMPUTE, COPY, ONCE
from trainwright.program.tabulate import is_merged, orders_of
from trainwright.simulate.spans import Span, Spot, build_timeline
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import recompute_apart

# Of each device: a unit that computes, and one for each lane of communication and of copies.
_UNITS = ("main", *LANES[LANES.index("model") :])
_KINDS = {"main": COMPUTE, "copy": COPY, "back": COPY}
# Instead of the number of a step: the optimizer's; what all devices agree on before; what else a step costs.
UPDATE, AGREEMENT, OVERHEAD = -1, -2, -3
_OVERHEAD = ("step overhead S", "overhead")
_ENDS = {UPDATE: ("optimizer update S", "optimizer"), AGREEMENT: _OVERHEAD, OVERHEAD: _OVERHEAD}
_Key = tuple[object, ...]


class Seen(NamedTuple):
    """When a device did its part of a step: of a route, for a microbatch or once (-1)."""

    route: int
    step: int
    microbatch: int
    start_s: float
    end_s: float


def build_measured(program: Program, seen: Mapping[int, Sequence[Seen]]) -> Timeline:
    """What each device has seen, on one clock that is 0 when the step begins; each is a place of its own.

    Communication begins when the last of those that take part is ready for it: what the others wait until
    then is a bubble, as it is in a prediction.
    """
    latest = _latest(program, seen)
    merged = is_merged(orders_of(program))
    spans = [
        _span(program, place * len(_UNITS), each, latest.get(_key(program, each, device)), merged=merged)
        for place, device in enumerate(sorted(seen))
        for each in seen[device]
    ]
    units = [Spot(place, _KINDS.get(unit, COMMUNICATION)) for place in range(len(seen)) for unit in _UNITS]
    step_s = max((each.end_s for each in spans), default=0.0)
    timeline = build_timeline(spans, units, [(device,) for device in sorted(seen)], step_s)
    return replace(timeline, table=recompute_apart(timeline.table))


def _span(program: Program, unit: int, seen: Seen, ready_s: float | None, *, merged: bool) -> Span:
    lane, (label, cause) = "main", _ENDS.get(seen.step, ("", ""))
    if seen.step >= 0:
        step = program.routes[seen.route].steps[seen.step]
        lane, label, cause = _lane(step), step_label(step, merged=merged), step.cause
    start_s = seen.start_s if ready_s is None else min(max(seen.start_s, ready_s), seen.end_s)
    return Span(
        unit=unit + _UNITS.index(lane), label=label, cause=cause, start_s=start_s, end_s=seen.end_s,
        microbatch=ONCE if seen.microbatch < 0 else seen.microbatch,
    )  # fmt: skip


def _lane(step: Step) -> str:
    if step.kind in ("compute", "join", *LOCAL):
        return "main"
    return step.lane if step.lane in _UNITS[1:] else "model"


def _latest(program: Program, seen: Mapping[int, Sequence[Seen]]) -> dict[_Key | None, float]:
    """When the last of those that communicate with one another began to."""
    found: dict[_Key | None, float] = {}
    for device, listed in seen.items():
        for each in listed:
            key = _key(program, each, device)
            if key is not None:
                found[key] = max(found.get(key, each.start_s), each.start_s)
    return found


def _key(program: Program, seen: Seen, device: int) -> _Key | None:
    """What those that communicate with one another have in common."""
    if seen.step < 0:
        return (AGREEMENT,) if seen.step == AGREEMENT else None
    members = _members(program.routes[seen.route].steps[seen.step], device)
    return (seen.route, seen.step, seen.microbatch, members) if len(members) > 1 else None


def _members(step: Step, device: int) -> tuple[int, ...]:
    listed: Iterator[Sequence[int]] = iter(step.groups)
    if step.move is not None:
        listed = ((*senders, *receivers) for senders, receivers in groups(step.move))
    return next((tuple(sorted({*each})) for each in listed if device in each), ())
