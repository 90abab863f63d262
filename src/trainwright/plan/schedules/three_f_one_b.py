"""3F1B: several forwards of a microbatch, then one backward, for models that recycle their output (Lin et
al., 2023, SuperScaler, arXiv 2301.08984; the order is our own)."""

from collections.abc import Iterator

from trainwright.plan.action import Action
from trainwright.plan.schedules.types import Schedule, check_counts


def three_f_one_b(pp: int, microbatches: int, *, passes: int = 3) -> Schedule:
    """Each microbatch goes through the pipeline `passes` times, with gradient the last time only.

    In steady state a row runs the passes of microbatches k, k−p, k−2p …, then a backward. A pass begins p
    windows after the one before it: that long the first takes to come out of the last row. The bubble is
    (p−1)(F+B), as 1F1B's, if m ≥ p. Row i holds p−i microbatches' activations at most, and row 0 the outputs
    of p microbatches for each pass. With one pass it is 1F1B.
    """
    check_counts(pp=pp, microbatches=microbatches, passes=passes)
    rows = tuple(tuple(_row(row, pp, microbatches, passes - 1)) for row in range(pp))
    return Schedule(rows=rows, routes=(tuple(range(pp)),))


def _row(row: int, pp: int, microbatches: int, recycled: int) -> Iterator[Action]:
    held = pp - 1 - row
    for window in range(microbatches + recycled * pp + held):
        for pass_ in range(recycled):
            if 0 <= window - pass_ * pp < microbatches:
                yield Action("N", row, window - pass_ * pp, pass_)
        newest = window - recycled * pp
        if 0 <= newest < microbatches:
            yield Action("F", row, newest)
        if 0 <= newest - held < microbatches:
            yield Action("B", row, newest - held)
