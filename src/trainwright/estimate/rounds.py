"""The time of a round of islands in closed form: its steps, and what of their meetings is not hidden."""

from collections.abc import Sequence

from trainwright.program.meetings import Meeting


def round_s(step_s: float, every: int, meetings: Sequence[Meeting]) -> float:
    """Time of a round of so many steps of that time.

    A meeting runs beside the steps of its delay; what it takes beyond them is waited for. The links between
    islands carry one meeting after another, so a round is never shorter than all of them.
    """
    applied_s = sum(each.apply_s for each in meetings)
    waited_s = sum(max(each.link_s - each.delay * step_s, 0.0) for each in meetings)
    return max(every * step_s + applied_s + waited_s, sum(each.link_s for each in meetings))
