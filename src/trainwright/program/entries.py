"""Steps as entries in the queues of places: what one microbatch, or one step, puts there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from trainwright.cost.overlap import smooth_max
from trainwright.program.lower import Program, Route
from trainwright.program.moves import LOCAL, groups
from trainwright.program.places import Places
from trainwright.program.step import Step, Value

LANES = ("main", "filler", "model", "data", "copy")
Group = tuple[int, str, int, int]  # route, phase of actions, stage, place


@dataclass(slots=True, kw_only=True)
class Entry:
    """One task of a template; `inputs` are entries of the same microbatch, or of the step."""

    group: Group
    lane: str
    label: str
    cause: str
    seconds: float
    slows: float = 0.0
    inputs: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Entries:
    """All entries of a program: by group in order, and which ones begin and end each step at each place."""

    listed: list[Entry] = field(default_factory=list)
    begin: dict[tuple[int, int, int], int] = field(default_factory=dict)  # by route, step and place
    end: dict[tuple[int, int, int], int] = field(default_factory=dict)
    position: dict[int, float] = field(default_factory=dict)  # in the queue, where it is not the number

    def add(self, entry: Entry) -> int:
        """Append an entry; its number."""
        self.listed.append(entry)
        return len(self.listed) - 1


def action_phase(step: Step, *, merged: bool) -> str:
    """The phase of the actions that a step belongs to: once a step (P, S), or F, N, B or I and W."""
    if step.phase in "PSF":
        return step.phase
    if step.phase == "N":
        return f"N{step.passes}"
    if merged:
        return "B"
    return "W" if step.phase == "W" else "I"


@dataclass(slots=True, kw_only=True)
class Writer:
    """Turns the steps of one route into entries."""

    program: Program
    route: int
    places: Places
    entries: Entries
    merged: bool  # whether weight gradients go with those of inputs
    written: dict[Value, list[int]] = field(default_factory=dict)
    blocks: dict[tuple[Group, str, str], list[int]] = field(default_factory=dict)
    weights: dict[int, int] = field(default_factory=dict)  # by stage, the last step that gave a weight gradient
    gathers: dict[str, list[int]] = field(default_factory=dict)  # P steps of each block
    inputs: list[tuple[int, ...]] = field(default_factory=list)  # of each step, the steps it waits for

    def run(self) -> None:
        """Add all steps of the route."""
        route = self._route()
        for number, step in enumerate(route.steps):
            if step.phase == "P":
                self.gathers.setdefault(step.block, []).append(number)
        for number, step in enumerate(route.steps):
            self.inputs.append(self._waits(number, step))
            if step.lane == "filler":
                self.weights[step.stage] = number
            for value in step.writes:
                self.written.setdefault(value, []).append(number)
            for place in self.places.covered(step.mesh.devices):
                self._place(number, step, place)
                if step.lane != "data" and step.phase not in "PS":
                    key = (self._group(step, place), step.block, "R" if step.phase == "R" else "")
                    self.blocks.setdefault(key, []).append(number)

    def _route(self) -> Route:
        return self.program.routes[self.route]

    def _group(self, step: Step, place: int) -> Group:
        return (self.route, action_phase(step, merged=self.merged), step.stage, place)

    def _waits(self, number: int, step: Step) -> tuple[int, ...]:
        route = self._route()
        if step.alongside >= 0:
            return self.inputs[step.alongside]
        found: dict[int, None] = {}
        for value in step.reads:
            while value in route.aliases:
                value = route.aliases[value]
            for writer in self.written.get(value, ()):
                made = route.steps[writer]
                found |= dict.fromkeys((writer, *made.beside, *((made.alongside,) if made.alongside >= 0 else ())))
        for other in (*step.after, *(step.after_weights if self.merged else ())):
            found[other] = None
        if step.phase in "FN" and step.kind == "compute":
            for gather in self.gathers.get(step.block, ()):
                found[gather] = None
        if self.merged and step.cause == "pp" and step.phase == "I" and step.stage in self.weights:
            found[self.weights[step.stage]] = None  # a backward has ended when its weight gradients have
        found.pop(number, None)
        return tuple(found)

    def _place(self, number: int, step: Step, place: int) -> None:
        e, key = self.entries, (self.route, number, place)
        seconds = step.uneven_s.get(self.places.devices[place][0], step.seconds)
        word = "" if step.kind == "compute" else f" {step.kind}"
        common = {
            "group": self._group(step, place), "label": f"{step.name}{word} {step.phase}", "cause": step.cause,
        }  # fmt: skip
        waits = self._entry_inputs(number, step, place)
        main = Entry(**common, lane="main", seconds=seconds * step.blocking, inputs=waits)
        if step.kind in ("compute", "join", *LOCAL) or step.blocking >= 1.0:
            main.seconds = seconds
            main.lane = "filler" if self.merged and step.lane == "filler" else "main"
            e.begin[key] = e.end[key] = e.add(main)
            self._settle(number, place)
            return
        apart = Entry(
            **common, lane=step.lane, seconds=seconds * (1.0 - step.blocking), slows=step.slows, inputs=waits
        )
        if step.blocking <= 0.0:
            e.begin[key] = e.end[key] = e.add(apart)
            return
        # What is brought ahead of its use, or streams out of an operator, blocks when its turn comes; of the
        # rest, what blocks comes first, and what hides runs beside what follows.
        ahead = step.alongside >= 0 or (step.lane == "data" and step.kind == "all_gather")
        first, second = (apart, main) if ahead else (main, apart)
        e.begin[key] = e.add(first)
        second.inputs = [e.begin[key]]
        e.end[key] = e.add(second)

    def _settle(self, number: int, place: int) -> None:
        """Let what blocks of a gather ahead queue where its values are first used."""
        e = self.entries
        for other in self.inputs[number]:
            step = self._route().steps[other]
            if step.lane == "data" and step.kind == "all_gather" and 0.0 < step.blocking and step.phase != "P":
                e.position.setdefault(e.end[(self.route, other, place)], e.begin[(self.route, number, place)] - 0.25)

    def _entry_inputs(self, number: int, step: Step, place: int) -> list[int]:
        e = self.entries
        found: list[int] = []
        together = step.move is not None and self._crosses(step)
        for other in self.inputs[number]:
            listed = self.places.covered(self._route().steps[other].mesh.devices)
            where = listed if together or place not in listed else (place,)
            found += [e.end[(self.route, other, p)] for p in where if (self.route, other, p) in e.end]
        for move in step.beside:
            # A streamed gather must have begun, not ended.
            key = (self.route, move, place)
            found.append(e.begin[key])
        return list(dict.fromkeys(found))

    def _crosses(self, step: Step) -> bool:
        """Whether a move runs over devices of several places."""
        assert step.move is not None
        if len(self.places.covered(step.mesh.devices)) == 1 and step.move.source.mesh.devices == step.move.target.mesh.devices:
            return False
        return any(
            len({self.places.of[device] for device in (*senders, *receivers)}) > 1
            for senders, receivers in groups(step.move)
        )


def launch_s(route: Route, numbers: Sequence[int], op_s: float) -> float:
    """What the host adds to a block: it launches kernels one by one, however short they are."""
    steps = [route.steps[number] for number in numbers]
    host = op_s * sum(step.kernels for step in steps)
    if not host:
        return 0.0
    weights = sum(step.seconds for step in steps if step.lane == "filler")
    beside = sum(step.seconds * (1.0 - step.blocking) for step in steps if step.cause == "tp")
    device = sum(_shown_s(route, step) for step in steps if step.lane != "filler") + max(weights, beside)
    both = smooth_max(np.array([device]), np.array([host]))
    return float(both[0]) - device


def _shown_s(route: Route, step: Step) -> float:
    """The time of a step that nothing hides: all of an operator (or what streams in beside it, if longer)."""
    if step.kind == "compute":
        late = sum(
            route.steps[move].seconds * (1.0 - route.steps[move].blocking) for move in step.beside
        )
        return max(step.seconds, late)
    return step.seconds * step.blocking


def entries_of(program: Program, places: Places, *, merged: bool) -> tuple[Entries, list[Writer]]:
    """The entries of a program, in the order in which they queue inside each group."""
    entries = Entries()
    writers = []
    for number in range(len(program.routes)):
        writer = Writer(program=program, route=number, places=places, entries=entries, merged=merged)
        writer.run()
        writers.append(writer)
    return entries, writers


def in_groups(entries: Iterable[Entry]) -> dict[Group, list[int]]:
    """The numbers of entries by group."""
    found: dict[Group, list[int]] = {}
    for number, entry in enumerate(entries):
        found.setdefault(entry.group, []).append(number)
    return found
