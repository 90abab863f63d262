"""Where the time of a step went."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainwright.program.table import Floats, Ints
from trainwright.simulate.timeline import COMMUNICATION_CAUSES, Timeline, all_pieces

BUBBLE = "bubble"


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Seconds of the step by cause and place; on each place the parts of `time_s` add up to `step_s`.

    Of communication, `time_s` has what is exposed: time in which it runs and the compute unit is idle or runs
    it itself. `hidden_s` is the rest: it ran beside compute, or beside other communication that is charged.
    `bubble` is time in which nothing runs on the place.
    """

    step_s: float
    time_s: Mapping[str, Floats]
    hidden_s: Mapping[str, Floats]

    @property
    def communication_s(self) -> Mapping[str, Floats]:
        """All communication, exposed or hidden."""
        return {cause: self.time_s[cause] + hidden_s for cause, hidden_s in self.hidden_s.items()}


def breakdown(timeline: Timeline) -> Breakdown:
    """What each cause adds to the step, on each place."""
    table = timeline.table
    causes = tuple(dict.fromkeys(table.causes))
    numbers = np.array([causes.index(each) for each in table.causes], np.int32)
    cause = np.append(numbers[table.label], len(causes))  # by task; the last is of pieces that are IDLE
    spent = np.zeros((len(table.places), len(causes) + 1))
    for place, pieces in enumerate(all_pieces(timeline)):
        spent[place] = np.bincount(cause[pieces.task], np.diff(pieces.edges_s), minlength=len(causes) + 1)
    total = _total_s(timeline, cause[:-1], len(causes))
    return Breakdown(
        step_s=timeline.step_s,
        time_s=dict(zip((*causes, BUBBLE), spent.T, strict=True)),
        hidden_s={
            name: np.maximum(total[:, index] - spent[:, index], 0.0)
            for index, name in enumerate(causes)
            if name in COMMUNICATION_CAUSES
        },
    )


def _total_s(timeline: Timeline, cause: Ints, causes: int) -> Floats:
    """By place and cause, the seconds of all tasks on all units."""
    table = timeline.table
    place = table.unit_place[table.lane_unit[table.lane]]
    sums = np.bincount(
        place * causes + cause, timeline.end_s - timeline.start_s, minlength=len(table.places) * causes
    )
    return np.asarray(sums, float).reshape(len(table.places), causes)
