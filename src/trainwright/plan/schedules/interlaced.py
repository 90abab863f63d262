"""Interlaced pipeline: an embedding and a head split over all rows of a pipeline, between its steps (Lin et
al., 2023, SuperScaler, arXiv 2301.08984; the order is our own)."""

from collections.abc import Iterator

from trainwright.plan.action import Action
from trainwright.plan.schedules.types import EVERY_ROW, Schedule, check_counts

Timed = tuple[int, int, Action]  # window, place in the window, action


def interlaced(pp: int, microbatches: int, *, forward: float = 1.0, backward: float = 2.0) -> Schedule:
    """Stage 0 is the embedding, stage p+1 the head, both on every row; stage i+1 is on row i.

    Time is cut into windows. In each, all rows first run the shared actions of up to three microbatches
    together (embedding, head forward and backward, embedding's backward), then one forward and one backward
    each on their own: the last row and every second one before it the backward first, the others the forward.
    So rows meet once a window, after equal work. A microbatch advances two rows a window in the direction
    whose action is no longer than the other's, of durations `forward` and `backward`, else one.

    The bubble is 1F1B's, (p−1)(F+B), whatever the shared actions take. Row i holds 3(p−i)/2 microbatches at
    most; p−i with equal durations, which may also be pretended, to save memory and wait more.
    """
    check_counts(pp=pp, microbatches=microbatches)
    rows = (
        sorted(
            timed
            for each in range(microbatches)
            for timed in _timed(row, pp, each, (forward <= backward, backward <= forward))
        )
        for row in range(pp)
    )
    return Schedule(
        rows=tuple(tuple(action for _, _, action in row) for row in rows),
        routes=((EVERY_ROW, *range(pp), EVERY_ROW),),
    )


def _timed(row: int, pp: int, microbatch: int, two_rows: tuple[bool, bool]) -> Iterator[Timed]:
    """The actions of a row on a microbatch, which enters the pipeline in the window of its own number."""
    place, last = row + pp % 2, pp - 1 + pp % 2  # counted such that the last row is odd
    down, back = 1 + two_rows[0], 1 + two_rows[1]
    head = microbatch + last // down + 1
    end = head + last // back
    yield microbatch, 3, Action("F", 0, microbatch)
    yield head, 1, Action("F", pp + 1, microbatch)
    yield head, 2, Action("B", pp + 1, microbatch)
    yield end + 1, 0, Action("B", 0, microbatch)
    yield microbatch + place // down, 4 + place % 2, Action("F", row + 1, microbatch)
    yield end - place // back, 5 - place % 2, Action("B", row + 1, microbatch)
