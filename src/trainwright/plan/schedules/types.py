"""A schedule: what each row of a pipeline does, in order, and which rows hold which stage."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.plan.action import Action

EVERY_ROW = -1  # of a stage on a route: all rows run each of its actions together


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The actions of every row in execution order, and the routes that microbatches take.

    A row is a group of devices at one place of the pipeline. `routes[r][stage]` is the row that runs the
    stage for microbatches on route r, or EVERY_ROW. Microbatches take the routes in turn.
    """

    rows: tuple[tuple[Action, ...], ...]
    routes: tuple[tuple[int, ...], ...]

    @property
    def stages(self) -> int:
        """Stages that a microbatch passes through."""
        return len(self.routes[0])

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """For each stage, the rows that hold its weights, whole or their part of them."""
        held = (
            {self.rows_of(stage, route) for route in range(len(self.routes))} for stage in range(self.stages)
        )
        return tuple(tuple(sorted({row for rows in each for row in rows})) for each in held)

    def route_of(self, microbatch: int) -> int:
        """The route that a microbatch takes."""
        return microbatch % len(self.routes)

    def rows_of(self, stage: int, microbatch: int) -> tuple[int, ...]:
        """The rows that run a stage for a microbatch: one, or all of them together."""
        row = self.routes[self.route_of(microbatch)][stage]
        return tuple(range(len(self.rows))) if row == EVERY_ROW else (row,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A stage on a row, and the microbatches it sees: every `step`-th from `first` on."""

    stage: int
    first: int = 0
    step: int = 1


def spell_row(letters: Iterable[str], chunks: Sequence[Chunk], microbatches: int) -> tuple[Action, ...]:
    """The actions of a row that is written as letters, without those of microbatches that do not exist.

    `F0` is the next forward of its chunk 0, `B1` or `I1` the next backward of its chunk 1, `W` the weights of
    the oldest I that still lacks them. Leaving microbatches out breaks no dependency between the others.
    """
    count: Counter[str] = Counter()
    owed: deque[Action] = deque()
    actions = []
    for letter in letters:
        if letter == "W":
            actions.append(owed.popleft()._replace(phase="W"))
            continue
        phase, chunk = letter[0], chunks[int(letter[1:])]
        direction = f"F{letter[1:]}" if phase == "F" else f"B{letter[1:]}"
        action = Action(phase, chunk.stage, chunk.first + chunk.step * count[direction])
        count[direction] += 1
        actions.append(action)
        if phase == "I":
            owed.append(action)
    return tuple(action for action in actions if action.microbatch < microbatches)


def check_counts(**counts: int) -> None:
    """Raise unless every count is at least 1."""
    for name, count in counts.items():
        if count < 1:
            raise BadInput(f"schedule {name}", count, "counts start at 1", "use 1 or more")


__all__ = ["EVERY_ROW", "Chunk", "Schedule", "check_counts", "spell_row"]
