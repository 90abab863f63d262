"""1F1B: a backward as soon as one is ready (Narayanan et al., 2019, PipeDream; flushed each step as in
Fan et al., 2021, DAPPLE, arXiv 2007.01045)."""

from trainwright.plan.action import Action
from trainwright.plan.schedules.types import Schedule, check_counts


def one_f_one_b(pp: int, microbatches: int) -> Schedule:
    """Row i holds p−i microbatches at most; the bubble is GPipe's, (p−1)(F+B)."""
    check_counts(pp=pp, microbatches=microbatches)
    return Schedule(
        rows=tuple(_row(row, min(pp - row - 1, microbatches), microbatches) for row in range(pp)),
        routes=(tuple(range(pp)),),
    )


def _row(row: int, ahead: int, microbatches: int) -> tuple[Action, ...]:
    actions = [Action("F", row, each) for each in range(ahead)]
    for each in range(microbatches - ahead):
        actions += (Action("F", row, each + ahead), Action("B", row, each))
    actions += (Action("B", row, each) for each in range(microbatches - ahead, microbatches))
    return tuple(actions)
