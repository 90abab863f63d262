"""Chimera: two pipelines in opposite directions (Li and Hoefler, 2021, arXiv 2107.06925)."""

from collections.abc import Iterator

from trainwright.errors import BadInput
from trainwright.plan.action import Action
from trainwright.plan.schedules.types import Schedule, check_counts


def chimera(pp: int, microbatches: int) -> Schedule:
    """Stage i is on rows i and p−1−i: two copies of the weights; even microbatches go down, odd ones up.

    Units of p microbatches follow one another directly; the last may be smaller. With F = B the bubble is p−2
    actions, whatever the number of units; with B = 2F each further unit adds idle time between them. A row
    holds p microbatches' activations at most.
    """
    check_counts(pp=pp, microbatches=microbatches)
    if pp % 2:
        raise BadInput("chimera pp", pp, "microbatches meet in the middle", "use an even number")
    rows = tuple(tuple(action for _, action in sorted(_timed(row, pp, microbatches))) for row in range(pp))
    return Schedule(rows=rows, routes=(tuple(range(pp)), tuple(reversed(range(pp)))))


def _timed(row: int, pp: int, microbatches: int) -> Iterator[tuple[int, Action]]:
    """Actions of a row with the slots they take when F = B: the two directions take odd and even ones."""
    for each in range(microbatches):
        unit, place = divmod(each, pp)
        stage = pp - 1 - row if each % 2 else row
        start = 2 * (pp * unit + place // 2)
        yield start + stage, Action("F", stage, each)
        yield start + 2 * pp - 1 - stage, Action("B", stage, each)
