"""An action: one phase of one stage on one microbatch, the letter in which schedules are written."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from trainwright.errors import BadInput

PHASES = {
    "F": "forward",
    "B": "backward, of inputs and weights",
    "I": "backward of inputs only",
    "W": "backward of weights only, after I",
    "N": "forward without gradient, for recycling",
}
_WORD = re.compile(rf"([{''.join(PHASES)}])(\d{{1,9}})\.(\d{{1,9}})(?:\.(\d{{1,9}}))?", re.ASCII)


class Action(NamedTuple):
    """What a row of devices does next: a phase of a stage, for a microbatch.

    `pass_` counts the forwards without gradient of one microbatch (N); it is 0 in every other phase. A tuple,
    because a schedule has hundreds of thousands of them.
    """

    phase: str
    stage: int
    microbatch: int
    pass_: int = 0

    def __str__(self) -> str:
        return f"{self.phase}{self.stage}.{self.microbatch}" + (f".{self.pass_}" if self.pass_ else "")


def parse_action(text: str) -> Action:
    """The action that a word such as `F3.12` (stage 3, microbatch 12) or `N3.12.1` (pass 1) names."""
    match = _WORD.fullmatch(text)
    if match is None:
        rule = f"not a phase ({', '.join(PHASES)}), a stage and a microbatch"
        raise BadInput("action", text, rule, "write it as F3.12, or N3.12.1 for pass 1")
    phase, stage, microbatch, pass_ = match.groups()
    if pass_ is not None and phase != "N":
        raise BadInput("action", text, "only N has passes", f"write {phase}{stage}.{microbatch}")
    return Action(phase, int(stage), int(microbatch), int(pass_ or 0))


def render_actions(actions: Iterable[Action]) -> str:
    """One line of actions in order: `F0.0 F0.1 B0.0 …`."""
    return " ".join(map(str, actions))


def parse_actions(text: str) -> tuple[Action, ...]:
    """The actions that a line of words names, in its order."""
    return tuple(map(parse_action, text.split()))


__all__ = ["PHASES", "Action", "parse_action", "parse_actions", "render_actions"]
