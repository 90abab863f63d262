"""Whether a schedule can run: every action once, where its stage is, in an order without deadlock."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from trainwright.errors import BadInput
from trainwright.plan.action import PHASES, Action
from trainwright.plan.schedules.types import Schedule

Found = Mapping[Action, list[int]]  # rows of each action


def check(schedule: Schedule, stages: int, microbatches: int, *, passes: int = 1) -> None:
    """Raise unless every stage runs every microbatch forward and backward once, on its rows, and none waits
    forever.

    Backward is B, or I and W. `passes` forwards precede a backward, all but the last without gradient. Rows
    that share a stage run its actions together.
    """
    if schedule.stages != stages:
        raise BadInput("schedule stages", schedule.stages, f"{stages} are to run", "build it for as many")
    found = _found(schedule)
    for stage in range(stages):
        for microbatch in range(microbatches):
            _check_complete(schedule, found, stage, microbatch, passes)
    _check_nothing_else(found, stages, microbatches, passes)
    _check_order(schedule, found, passes)


def inputs(action: Action, found: Mapping[Action, object], stages: int, passes: int = 1) -> Iterator[Action]:
    """The actions whose results an action needs; `found` tells which backwards are split into I and W."""
    phase, stage, microbatch, pass_ = action
    if phase == "W":
        yield Action("I", stage, microbatch)
    elif phase in "BI":
        yield Action("F", stage, microbatch)
        if stage + 1 < stages:
            split = Action("I", stage + 1, microbatch)
            yield split if split in found else Action("B", stage + 1, microbatch)
    elif stage:
        yield Action(phase, stage - 1, microbatch, pass_)
    else:
        before = (pass_ if phase == "N" else passes - 1) - 1
        if before >= 0:
            yield Action("N", stages - 1, microbatch, before)


def _found(schedule: Schedule) -> dict[Action, list[int]]:
    found: dict[Action, list[int]] = {}
    for row, actions in enumerate(schedule.rows):
        for action in actions:
            found.setdefault(action, []).append(row)
    return found


def _check_complete(schedule: Schedule, found: Found, stage: int, microbatch: int, passes: int) -> None:
    whole = Action("B", stage, microbatch)
    parts = (Action("I", stage, microbatch), Action("W", stage, microbatch))
    split = any(each in found for each in parts)
    if split and whole in found:
        raise BadInput("schedule action", str(whole), "its backward is also split", "keep B, or I and W")
    wanted = [Action("F", stage, microbatch), *(parts if split else (whole,))]
    wanted += (Action("N", stage, microbatch, each) for each in range(passes - 1))
    rows = list(schedule.rows_of(stage, microbatch))
    for action in wanted:
        if found.get(action) != rows:
            _raise_misplaced(action, found.get(action, []), rows)


def _raise_misplaced(action: Action, found: list[int], rows: list[int]) -> None:
    wanted = f"{_named(rows)} must run it once"
    if not found:
        raise BadInput("schedule action", str(action), f"no row runs it, but {wanted}", "add it")
    raise BadInput(
        "schedule action", str(action), f"{_named(found)} runs it, but {wanted}", "move or drop it"
    )


def _named(rows: Iterable[int]) -> str:
    return "row " + ", ".join(map(str, rows))


def _check_nothing_else(found: Found, stages: int, microbatches: int, passes: int) -> None:
    for action in found:
        phase, stage, microbatch, pass_ = action
        passes_of_phase = passes - 1 if phase == "N" else 1
        if phase not in PHASES or not (
            0 <= stage < stages and 0 <= microbatch < microbatches and 0 <= pass_ < passes_of_phase
        ):
            rule = f"not among {stages} stages, {microbatches} microbatches and {passes} passes"
            raise BadInput("schedule action", str(action), rule, "drop it")


def _check_order(schedule: Schedule, found: Found, passes: int) -> None:
    """Run the rows, each as far as its inputs allow, and raise if some do not reach their ends."""
    rows = [iter(actions) for actions in schedule.rows]
    heads = [next(each, None) for each in rows]
    arrived: Counter[Action] = Counter()
    waiting: dict[Action, list[int]] = {}
    done: set[Action] = set()
    moving = list(range(len(rows)))
    while moving:
        row = moving.pop()
        action = heads[row]
        if action is None:
            continue
        missing = _missing(action, found, schedule.stages, passes, done)
        if missing is not None:
            waiting.setdefault(missing, []).append(row)
            continue
        arrived[action] += 1
        if arrived[action] == len(found[action]):
            done.add(action)
            for each in found[action]:
                heads[each] = next(rows[each], None)
            moving += (*found[action], *waiting.pop(action, ()))
    stuck = {row: head for row, head in enumerate(heads) if head is not None}
    if stuck:
        awaited = {
            head: _missing(head, found, schedule.stages, passes, done) or head for head in stuck.values()
        }
        _raise_deadlock(stuck, awaited, found)


def _missing(action: Action, found: Found, stages: int, passes: int, done: set[Action]) -> Action | None:
    return next((each for each in inputs(action, found, stages, passes) if each not in done), None)


def _raise_deadlock(heads: Mapping[int, Action], awaited: Mapping[Action, Action], found: Found) -> None:
    """Follow who waits for whom until a row comes back, and name the actions of that circle."""
    row = min(heads)
    path: list[int] = []
    waits: list[str] = []
    while row not in path:
        path.append(row)
        head = heads[row]
        wanted = awaited[head]
        row = next(each for each in found[wanted] if head != wanted or heads[each] != head)
        behind = "" if heads[row] == wanted else f", which row {row} runs after {heads[row]}"
        waits.append(f"{head} waits for {wanted}{behind}")
    circle = waits[path.index(row) :]
    raise BadInput("schedule action", str(heads[row]), f"deadlock: {'; '.join(circle)}", "reorder a row")


__all__ = ["check", "inputs"]
