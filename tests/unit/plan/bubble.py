"""How long a schedule takes, exactly: written without the package's own idea of dependencies."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from trainwright.plan.action import Action
from trainwright.plan.schedules import Schedule

Seconds = Fraction | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule's actions start and end, with communication free."""

    length: Seconds  # of the step
    waits: tuple[Seconds, ...]  # of each row, over the whole step
    waits_inside: tuple[Seconds, ...]  # of each row, between its first action and its last


def durations(
    schedule: Schedule, seconds: Mapping[str, Seconds], **special: Seconds
) -> dict[Action, Seconds]:
    """Seconds of each action: of its phase, or what `F0` and the like say for that phase of that stage."""
    return {
        action: special.get(f"{action.phase}{action.stage}", seconds[action.phase])
        for row in schedule.rows
        for action in row
    }


def measure(schedule: Schedule, seconds: Mapping[Action, Seconds]) -> Timing:
    """Run every row in order; an action starts when all its rows and all it needs are ready."""
    ends: dict[Action, Seconds] = {}
    free: list[Seconds] = [0] * len(schedule.rows)
    at = [0] * len(schedule.rows)
    moved = True
    while moved:
        moved = False
        for row, actions in enumerate(schedule.rows):
            while (
                at[row] < len(actions)
                and (begin := _begin(schedule, actions[at[row]], ends, free, at)) is not None
            ):
                action = actions[at[row]]
                ends[action] = begin + seconds[action]
                for each in schedule.rows_of(action.stage, action.microbatch):
                    at[each] += 1
                    free[each] = ends[action]
                moved = True
    assert at == [len(actions) for actions in schedule.rows], "the schedule does not finish"
    length = max(free)
    busy = [sum(seconds[action] for action in actions) for actions in schedule.rows]
    first = [ends[actions[0]] - seconds[actions[0]] for actions in schedule.rows]
    return Timing(
        length=length,
        waits=tuple(length - each for each in busy),
        waits_inside=tuple(free[row] - first[row] - busy[row] for row in range(len(busy))),
    )


def _begin(
    schedule: Schedule, action: Action, ends: Mapping[Action, Seconds], free: list[Seconds], at: list[int]
) -> Seconds | None:
    rows = schedule.rows_of(action.stage, action.microbatch)
    if any(at[row] == len(schedule.rows[row]) or schedule.rows[row][at[row]] != action for row in rows):
        return None
    times = [free[row] for row in rows]
    for choices in _needs(schedule, action):
        known = [ends[each] for each in choices if each in ends]
        if not known:
            return None
        times += known
    return max(times)


def _needs(schedule: Schedule, action: Action) -> list[tuple[Action, ...]]:
    """What must have ended, each as alternatives, since a backward is B or I."""
    phase, stage, microbatch, pass_ = action
    last = schedule.stages - 1
    if phase == "W":
        return [(Action("I", stage, microbatch),)]
    if phase in "BI":
        after = (
            [(Action("B", stage + 1, microbatch), Action("I", stage + 1, microbatch))] if stage < last else []
        )
        return [(Action("F", stage, microbatch),), *after]
    if stage:
        return [(Action(phase, stage - 1, microbatch, pass_),)]
    passes = max((each.pass_ + 1 for each in schedule.rows[0] if each.phase == "N"), default=0)
    before = (pass_ if phase == "N" else passes) - 1
    return [(Action("N", last, microbatch, before),)] if before >= 0 else []


def most_held(schedule: Schedule) -> tuple[int, ...]:
    """The most activations, each of a stage and a microbatch, that rows hold at once, from F to B or W."""
    peaks = []
    for actions in schedule.rows:
        split = {(each.stage, each.microbatch) for each in actions if each.phase == "W"}
        held = peak = 0
        for phase, stage, microbatch, _ in actions:
            held += phase == "F"
            peak = max(peak, held)
            held -= phase == "W" or (phase == "B" and (stage, microbatch) not in split)
        peaks.append(peak)
    return tuple(peaks)
