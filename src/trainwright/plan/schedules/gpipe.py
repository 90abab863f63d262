"""GPipe: all forwards, then all backwards in reverse (Huang et al., 2019, arXiv 1811.06965)."""

from trainwright.plan.action import Action
from trainwright.plan.schedules.types import Schedule, check_counts


def gpipe(pp: int, microbatches: int) -> Schedule:
    """A row holds the activations of all m microbatches; the bubble is (p−1)(F+B), (p−1)/m of the work."""
    check_counts(pp=pp, microbatches=microbatches)
    order = range(microbatches)
    return Schedule(
        rows=tuple(
            (
                *(Action("F", row, each) for each in order),
                *(Action("B", row, each) for each in reversed(order)),
            )
            for row in range(pp)
        ),
        routes=(tuple(range(pp)),),
    )
