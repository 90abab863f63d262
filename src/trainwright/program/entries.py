"""Steps as entries in the queues of places: what one microbatch, or one step, puts there."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trainwright.cost.overlap import smooth_max
from trainwright.program.links import Ends, OnLinks, Span, find_ends, is_gather, next_gathers, on_links
from trainwright.program.lower import Program, Route
from trainwright.program.moves import LOCAL, groups
from trainwright.program.places import Places
from trainwright.program.step import STATE_GRADIENT, Step, Value

LANES = ("main", "filler", "model", "data", "scatter", "reduce", "copy", "back")
_BESIDE = LANES[3:]  # of what no block waits for in its turn
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


def step_label(step: Step, *, merged: bool) -> str:
    """A step by name, kind and phase; the phase of a backward that is not cut in two is shown as B."""
    word = "" if step.kind == "compute" else f" {step.kind}"
    return f"{step.name}{word} {'B' if merged and step.phase == 'I' else step.phase}"


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
    weights: dict[int, int] = field(
        default_factory=dict
    )  # by stage, the last step that gave a weight gradient
    gathers: dict[str, list[int]] = field(default_factory=dict)  # P steps of each block
    next_gather: dict[int, int] = field(default_factory=dict)  # of each gather of weights, the one after it
    on_links: dict[int, OnLinks] = field(default_factory=dict)  # of each scatter
    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)  # of each step, the steps it waits for

    def run(self) -> None:
        """Add all steps of the route."""
        route = self._route()
        before = [number for number, step in enumerate(route.steps) if step.phase == "P"]
        for number in before:
            self.gathers.setdefault(route.steps[number].block, []).append(number)
        self.next_gather = next_gathers(route)
        self.on_links = on_links(route, merged=self.merged)
        # What comes before the first microbatch is listed last, but waited for by steps listed before it.
        for number in before:
            self._add(number, route.steps[number])
        for number, step in enumerate(route.steps):
            if step.phase != "P":
                self._add(number, step)

    def _add(self, number: int, step: Step) -> None:
        """The entries of one step, whose inputs have theirs."""
        self.inputs[number] = self._waits(number, step)
        if step.lane == "filler":
            self.weights[step.stage] = number
        for value in step.writes:
            self.written.setdefault(value, []).append(number)
        for place in self.places.covered(step.mesh.devices):
            self._place(number, step, place)
            if step.lane not in _BESIDE and step.phase not in "PS":
                key = (self._group(step, place), step.block, "R" if step.phase == "R" else "")
                self.blocks.setdefault(key, []).append(number)

    def _route(self) -> Route:
        return self.program.routes[self.route]

    def ends_of(self, names: Container[str]) -> list[int]:
        """The entries that end the making of some values, at every place."""
        made = {number for value, steps in self.written.items() if value.name in names for number in steps}
        return [
            self.entries.end[(self.route, number, place)]
            for number in sorted(made)
            for place in self.places.covered(self._route().steps[number].mesh.devices)
        ]

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
                found |= dict.fromkeys(
                    (writer, *made.beside, *((made.alongside,) if made.alongside >= 0 else ()))
                )
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
        waits = self._entry_inputs(number, step, place)
        main = Entry(
            group=self._group(step, place), lane="main", label=step_label(step, merged=self.merged),
            cause=step.cause, seconds=seconds * step.blocking, inputs=waits,
        )  # fmt: skip
        if step.kind in ("compute", "join", *LOCAL) or step.blocking >= 1.0:
            main.seconds = seconds
            main.lane = "filler" if self._fills(step) else "main"
            e.begin[key] = e.end[key] = e.add(main)
            self._settle(number, place)
            return
        apart = replace(main, lane=step.lane, seconds=seconds * (1.0 - step.blocking), slows=step.slows)
        if step.blocking <= 0.0:
            e.begin[key] = e.end[key] = e.add(apart)
            return
        # What is brought ahead of its use, or streams out of an operator, blocks when its turn comes; of the
        # rest, what blocks comes first, and what hides runs beside what follows.
        ahead = step.alongside >= 0 or (step.lane == "data" and step.kind == "all_gather")
        first, second = (apart, main) if ahead else (main, apart)
        gathers, scatters = self.on_links.get(number, ((), ()))
        first.inputs += [e.begin[(self.route, other, place)] for other in gathers]
        first.inputs += [e.end[(self.route, other, place)] for other in scatters]
        e.begin[key] = e.add(first)
        second.inputs = [e.begin[key], *(e.end[(self.route, other, place)] for other in gathers)]
        e.end[key] = e.add(second)

    def _fills(self, step: Step) -> bool:
        """Whether a weight gradient waits for communication to hide; else it frees what it reads at once."""
        hides = self.program.setting.stack.tp_overlap > 0.0 and self.program.plan.overlap
        return self.merged and hides and step.lane == "filler"

    def _settle(self, number: int, place: int) -> None:
        """Let what blocks of a gather ahead queue where its values are first used, and wait as they do."""
        e = self.entries
        user = e.begin[(self.route, number, place)]
        for other in self.inputs[number]:
            step = self._route().steps[other]
            if not is_gather(step) or step.blocking <= 0.0:
                continue
            gather = e.end[(self.route, other, place)]
            if gather not in e.position:
                self._chain(other, gather, place)
                e.position[gather] = user - 0.25
                # Other gathers of the same block are waited for by the user itself.
                more = [
                    n
                    for n in e.listed[user].inputs
                    if n not in e.listed[gather].inputs and not _is_gather(e.listed[n])
                ]
                e.listed[gather].inputs += [n for n in more if n != gather]

    def _chain(self, number: int, gather: int, place: int) -> None:
        """What blocks of a gather holds up the next one of its stage and phase as well: they share links."""
        e, step = self.entries, self._route().steps[number]
        following = self.next_gather.get(number)
        if following is not None and (self.route, following, place) in e.begin and step.blocking < 1.0:
            e.listed[e.begin[(self.route, following, place)]].inputs.append(gather)

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
        if (
            len(self.places.covered(step.mesh.devices)) == 1
            and step.move.source.mesh.devices == step.move.target.mesh.devices
        ):
            return False
        return any(
            len({self.places.of[device] for device in (*senders, *receivers)}) > 1
            for senders, receivers in groups(step.move)
        )


def _is_gather(entry: Entry) -> bool:
    return entry.label.startswith("weights/")


def launch_s(route: Route, numbers: Sequence[int], op_s: float) -> float:
    """What the host adds to a block: it launches kernels one by one, however short they are."""
    steps = [route.steps[number] for number in numbers]
    if steps[0].phase == "R" and not any(step.cause == "matmul" for step in steps):
        return 0.0  # a few operators done again are launched with the backward
    host, device = _host_s(steps, op_s), device_s(route, steps)
    return _larger_s(device, host) - device if host else 0.0


def device_s(route: Route, steps: Sequence[Step]) -> float:
    """The time of a block's steps on a device, what hides behind something else left out."""
    weights = sum(step.seconds for step in steps if step.lane == "filler")
    beside = sum(step.seconds * (1.0 - step.blocking) for step in steps if step.cause == "tp")
    return sum(_shown_s(route, step) for step in steps if step.lane != "filler") + max(weights, beside)


def weights_share(route: Route, inputs: Sequence[int], weights: Sequence[int], op_s: float) -> float:
    """Of weight gradients that are put off: the share of their time that the host leaves.

    Launching takes as long for a backward whether its weight gradients follow at once or not.
    """
    first, later = [route.steps[n] for n in inputs], [route.steps[n] for n in weights]
    put_off = sum(step.seconds for step in later if step.lane == "filler")
    host, alone = _host_s(first, op_s), device_s(route, first)
    whole = _larger_s(alone + put_off, host)
    return max(whole - min(_larger_s(alone, host), whole), 0.0) / put_off if put_off else 1.0


def _host_s(steps: Sequence[Step], op_s: float) -> float:
    return op_s * sum(step.kernels for step in steps)


def _larger_s(device: float, host: float) -> float:
    return float(smooth_max(np.array([device]), np.array([host]))[0])


def _shown_s(route: Route, step: Step) -> float:
    """The time of a step that nothing hides: all of an operator (or what streams in beside it, if longer)."""
    if step.kind == "compute":
        late = sum(route.steps[move].seconds * (1.0 - route.steps[move].blocking) for move in step.beside)
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
    for writer in writers if len(writers) > 1 else ():
        _wait_for_copies(entries, writer, [other for other in writers if other is not writer])
    return entries, writers


def _wait_for_copies(entries: Entries, writer: Writer, others: Sequence[Writer]) -> None:
    """Let sums of weight gradients wait for the copies of those weights on other routes."""
    steps = writer.program.routes[writer.route].steps
    for number, step in enumerate(steps):
        names = {value.name for value in step.reads if value.name.startswith(STATE_GRADIENT)}
        if step.phase != "S" or not names:
            continue
        awaited = [end for other in others for end in other.ends_of(names)]
        for place in writer.places.covered(step.mesh.devices):
            entries.listed[entries.begin[(writer.route, number, place)]].inputs += awaited


def find_link_ends(entries: Entries, writers: Sequence[Writer]) -> dict[Group, Ends]:
    """By group, the gathers and scatters at its ends."""
    used: dict[Group, list[tuple[Step, Span]]] = {}
    for writer in writers:
        for number, step in enumerate(writer.program.routes[writer.route].steps):
            if not is_gather(step) and step.lane != "scatter":
                continue
            for place in writer.places.covered(step.mesh.devices):
                key = (writer.route, number, place)
                span = (entries.begin[key], entries.end[key])
                used.setdefault(entries.listed[span[0]].group, []).append((step, span))
    return {group: find_ends(each) for group, each in used.items()}


def in_groups(entries: Iterable[Entry]) -> dict[Group, list[int]]:
    """The numbers of entries by group."""
    found: dict[Group, list[int]] = {}
    for number, entry in enumerate(entries):
        found.setdefault(entry.group, []).append(number)
    return found
