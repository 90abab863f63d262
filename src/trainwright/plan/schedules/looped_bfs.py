"""Looped breadth-first: every microbatch on a chunk before the next chunk (Lamy-Poirier, 2022,
arXiv 2211.05953)."""

from trainwright.plan.action import Action
from trainwright.plan.schedules.types import Schedule, check_counts


def looped_bfs(pp: int, microbatches: int, *, vpp: int = 2) -> Schedule:
    """Stage c·p + i is chunk c of row i; a row gathers and reduces each chunk's weights once a step.

    The bubble is (p−1)(F+B)/v if m ≥ p; a row holds the activations of all m microbatches.
    """
    check_counts(pp=pp, microbatches=microbatches, vpp=vpp)
    return Schedule(
        rows=tuple(_row(range(row, pp * vpp, pp), microbatches) for row in range(pp)),
        routes=(tuple(range(pp)) * vpp,),
    )


def _row(stages: range, microbatches: int) -> tuple[Action, ...]:
    forwards = (Action("F", stage, each) for stage in stages for each in range(microbatches))
    backwards = (Action("B", stage, each) for stage in reversed(stages) for each in range(microbatches))
    return (*forwards, *backwards)
