"""One order of all that a step does, on which every device agrees: how a program is carried out for real."""

import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.plan import Order
from trainwright.program.entries import action_phase
from trainwright.program.lower import Program, Route
from trainwright.program.step import Step, Weight
from trainwright.program.tabulate import action_phases, is_merged, orders_of


class Turn(NamedTuple):
    """A step of a route, for one microbatch (or, of what is done once, for none: -1)."""

    route: int
    step: int
    microbatch: int


_Part = tuple[int, str, int]  # route, phase of actions, stage


def sequence(program: Program) -> tuple[Turn, ...]:
    """All steps of all microbatches in an order that keeps every device's own and every dependency.

    A device that does only its own of these, one after another, never waits for one that waits for it. What
    is done once comes as early as it can: gathers first, reductions as soon as their gradients are there.
    """
    orders = orders_of(program)
    merged = is_merged(orders)
    parts = [_parts(route, number, merged=merged) for number, route in enumerate(program.routes)]
    listed: list[Turn] = [
        Turn(number, step, -1)
        for number, route in enumerate(program.routes)
        for step, each in enumerate(route.steps)
        if each.phase == "P"
    ]
    for action in _actions(program, orders, parts):
        route = action.microbatch % len(program.routes)
        for phase in action_phases(action):
            steps = parts[route].steps.get((route, phase, action.stage), ())
            listed += [Turn(route, step, action.microbatch) for step in steps]
    return tuple(_with_ends(program, listed))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The steps of a route by the action that they belong to, and which of those wait for which."""

    steps: Mapping[_Part, list[int]]
    before: Mapping[_Part, set[_Part]]


def _parts(route: Route, number: int, *, merged: bool) -> _Parts:
    steps: dict[_Part, list[int]] = {}
    before: dict[_Part, set[_Part]] = {}
    homes: list[_Part] = []
    for index, (step, inputs) in enumerate(zip(route.steps, inputs_of(route), strict=True)):
        part = (number, action_phase(step, merged=merged), step.stage)
        homes.append(part)
        if step.phase in "PS":
            continue
        steps.setdefault(part, []).append(index)
        before.setdefault(part, set()).update(
            homes[each] for each in inputs if homes[each] != part and homes[each][1] not in "PS"
        )
    return _Parts(steps=steps, before=before)


def inputs_of(route: Route) -> list[tuple[int, ...]]:
    """For each step of a route, the steps that it must come after."""
    written: dict[object, list[int]] = {}
    found: list[tuple[int, ...]] = []
    for step in route.steps:
        inputs = dict.fromkeys(step.after)
        for value in step.reads:
            while value in route.aliases:
                inputs |= dict.fromkeys(written.get(value, ()))
                value = route.aliases[value]
            inputs |= dict.fromkeys(written.get(value, ()))
        inputs |= dict.fromkeys(step.beside)
        found.append(tuple(inputs))
        for value in step.writes:
            written.setdefault(value, []).append(len(found) - 1)
    return found


def _actions(program: Program, orders: Sequence[Order], parts: Sequence[_Parts]) -> Iterator[Action]:
    """Actions in an order that keeps those of all devices, and the dependencies between stages."""
    devices = [device for order in orders for device in order.devices]
    queues = {device: order.actions for order in orders for device in order.devices}
    waiting: dict[Action, int] = {}
    following: dict[Action, list[Action]] = {}
    for actions in dict.fromkeys(queues[device] for device in devices):
        for action in actions:
            waiting.setdefault(action, 0)
        for one, two in itertools.pairwise(actions):
            following.setdefault(one, []).append(two)
            waiting[two] += 1
    for action, others in _data(program, waiting, parts).items():
        for other in others:
            following.setdefault(other, []).append(action)
            waiting[action] += 1
    ready = deque(action for action, count in waiting.items() if count == 0)
    done = 0
    while ready:
        action = ready.popleft()
        done += 1
        yield action
        for other in following.get(action, ()):
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    if done < len(waiting):
        stuck = next(action for action, count in waiting.items() if count)
        raise BadInput("plan: action", str(stuck), "waits for what waits for it", "change the orders")


def _data(
    program: Program, known: Mapping[Action, int], parts: Sequence[_Parts]
) -> dict[Action, set[Action]]:
    """Which actions wait for the results of which."""
    homes: dict[tuple[_Part, int], Action] = {}
    for action in known:
        route = action.microbatch % len(program.routes)
        for phase in action_phases(action):
            homes[((route, phase, action.stage), action.microbatch)] = action
    found: dict[Action, set[Action]] = {}
    for (part, microbatch), action in homes.items():
        for other in parts[part[0]].before.get(part, ()):
            source = homes.get((other, microbatch))
            if source is not None and source != action:
                found.setdefault(action, set()).add(source)
    return found


def _with_ends(program: Program, listed: Sequence[Turn]) -> Iterator[Turn]:
    """The turns, with what is done once at the end put where all that it waits for has been done."""
    last = {(turn.route, turn.step): at for at, turn in enumerate(listed)}
    after: dict[int, list[Turn]] = {}
    for number, route in enumerate(program.routes):
        for index, (step, inputs) in enumerate(zip(route.steps, end_inputs(program, number), strict=True)):
            if step.phase != "S":
                continue
            at = max((last[each] for each in inputs if each in last), default=len(listed) - 1)
            last[(number, index)] = at
            after.setdefault(at, []).append(Turn(number, index, -1))
    for at, turn in enumerate(listed):
        yield turn
        yield from after.get(at, ())


def end_inputs(program: Program, number: int) -> Iterator[list[tuple[int, int]]]:
    """What each step of a route comes after; of a reduction, all gradients that any device adds to it."""
    writers: dict[str, list[tuple[int, int]]] = {}
    for other, route in enumerate(program.routes):
        for index, step in enumerate(route.steps):
            for value in step.writes:
                writers.setdefault(value.name, []).append((other, index))
    route = program.routes[number]
    tied = program.setting.graph.tied
    for step, inputs in zip(route.steps, inputs_of(route), strict=True):
        found = [(number, each) for each in inputs]
        if step.phase == "S":
            names = {weight for _, weight in step.state}
            found += [each for value in step.reads for each in writers.get(value.name, ())]
            for name in names & tied:
                found += _tied_writers(program, writers, name)
            found += _scatters(program, set(step.state))
        yield found


def _scatters(program: Program, weights: set[Weight]) -> Iterator[tuple[int, int]]:
    """The steps of all routes that sum gradients of some weights after each microbatch."""
    for number, route in enumerate(program.routes):
        for index, step in enumerate(route.steps):
            if step.phase == "W" and weights.intersection(step.state):
                yield number, index


def _tied_writers(
    program: Program, writers: Mapping[str, list[tuple[int, int]]], name: str
) -> Iterator[tuple[int, int]]:
    for instance in program.instances:
        if any(weight.name == name for weight in instance.op.weights):
            yield from writers.get(f"g:{instance.name}", ())


def takes_part(step: Step, device: int) -> bool:
    """Whether a device has anything to do for a step."""
    if step.state:
        return any(device in group for group in step.groups)
    if step.move is not None:
        return device in step.move.source.mesh.devices or device in step.move.target.mesh.devices
    return device in step.mesh.devices
