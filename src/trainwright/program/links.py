"""What shares links with what: gathers of weights ahead of their use, scatters of gradients behind it.

What blocks of one does not run beside another: links carry one at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainwright.program.lower import Route
from trainwright.program.step import Step

OnLinks = tuple[Sequence[int], Sequence[int]]  # the gathers and the scatters that a scatter shares links with
Span = tuple[int, int]  # the first and the last task of a communication: one hides, one blocks


def is_gather(step: Step) -> bool:
    """Whether a step brings a block's weights together for one microbatch."""
    return step.lane == "data" and step.kind == "all_gather" and step.phase != "P"


def next_gathers(route: Route) -> dict[int, int]:
    """Of each gather of weights, the first one of the next block of the same stage and phase."""
    last: dict[tuple[int, str, int], list[int]] = {}
    found: dict[int, int] = {}
    for number, step in enumerate(route.steps):
        if not is_gather(step):
            continue
        before = last.setdefault((step.stage, step.phase, step.passes), [])
        if before and route.steps[before[-1]].block != step.block:
            found |= dict.fromkeys(before, number)
            before.clear()
        before.append(number)
    return found


def on_links(route: Route, *, merged: bool) -> dict[int, OnLinks]:
    """Of each scatter of gradients, what it meets: scatters of the block before, and gathers of the next
    block's weights, which are on their way, unless weight gradients are an action of their own.
    """
    gathers: dict[int, list[list[int]]] = {}  # by stage, of each block
    scatters: dict[int, list[list[int]]] = {}
    found: dict[int, OnLinks] = {}
    for number, step in enumerate(route.steps):
        if is_gather(step) and step.phase == "I" and merged:
            _append(route, gathers.setdefault(step.stage, [[]]), number)
        elif step.lane == "scatter":
            listed, ahead = scatters.setdefault(step.stage, [[]]), gathers.get(step.stage, [[]])[-1]
            _append(route, listed, number)
            mine = not ahead or route.steps[ahead[-1]].block == step.block
            found[number] = (() if mine else ahead, listed[-2] if len(listed) > 1 else ())
    return found


def _append(route: Route, blocks: list[list[int]], number: int) -> None:
    """Add a step to the last of some blocks, or begin the next one with it."""
    if blocks[-1] and route.steps[blocks[-1][-1]].block != route.steps[number].block:
        blocks.append([])
    blocks[-1].append(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Of an action: gathers of its first and of its last block, scatters of its last block."""

    first_gathers: tuple[Span, ...] = ()
    last_gathers: tuple[Span, ...] = ()
    last_scatters: tuple[Span, ...] = ()


def find_ends(used: Iterable[tuple[Step, Span]]) -> Ends:
    """The ends of an action that has some communication, listed in order."""
    partly = [(step, span) for step, span in used if span[0] != span[1]]
    gathers = [each for each in partly if is_gather(each[0])]
    scatters = [each for each in partly if each[0].lane == "scatter"]
    return Ends(
        first_gathers=_of_block(gathers, 0), last_gathers=_of_block(gathers, -1),
        last_scatters=_of_block(scatters, -1),
    )  # fmt: skip


def _of_block(listed: Sequence[tuple[Step, Span]], which: int) -> tuple[Span, ...]:
    return tuple(span for step, span in listed if step.block == listed[which][0].block)


@dataclass(slots=True, kw_only=True)
class Between:
    """Waits between the actions of a place: pairs of a task and what it waits for."""

    waits: list[tuple[int, int]] = field(default_factory=list)
    gathers: Sequence[Span] = ()  # the last that blocked
    scatters: Sequence[Span] = ()  # the last, if no gather came since
    moving: Sequence[Span] = ()  # the last before that gather: they hide behind its action

    def follow(self, ends: Ends) -> None:
        """Let the first gathers of an action share links with the actions before it."""
        for hides, blocks in ends.first_gathers:
            self.waits += [(hides, other) for _, other in self.gathers]
            self.waits += [(blocks, other) for _, other in self.moving]
            for first, last in self.scatters:
                self.waits += [(first, hides), (last, blocks)]
        if ends.first_gathers:
            self.gathers, self.scatters, self.moving = ends.last_gathers, (), self.scatters
        if ends.last_scatters:
            self.scatters = ends.last_scatters
