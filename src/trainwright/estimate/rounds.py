"""The time of a round of islands in closed form: its steps, and what of their meetings is not hidden."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy
from trainwright.program.meetings import Apartness, Meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Islands that learn by an algorithm: what one does, on its own part of the cluster, and their round."""

    apart: Apartness
    job: Job  # of one island; its model is a slice, if the algorithm trains slices
    strategy: Strategy
    island_step_s: float
    meetings: tuple[Meeting, ...]
    beside_bytes: float  # that each device holds for the algorithm

    @property
    def round_s(self) -> float:
        """Time of a round."""
        return round_s(self.island_step_s, self.apart.every, self.meetings)

    @property
    def step_s(self) -> float:
        """The mean time of a step, over a round."""
        return self.round_s / self.apart.every

    def exact_share(self, steps: float) -> float:
        """The share of a run of so many steps that is exact, as far as it has so many; 0 if that is open."""
        return min(self.apart.exact_steps / max(steps, 1.0), 1.0) if steps else 0.0

    def mean_s(self, steps: float, exact_s: float | None) -> float:
        """The mean time of a step over a run of so many, where an exact one takes so long, if it is known."""
        share = self.exact_share(steps) if exact_s is not None else 0.0
        return share * (exact_s or 0.0) + (1.0 - share) * self.step_s


def round_s(step_s: float, every: int, meetings: Sequence[Meeting]) -> float:
    """Time of a round of so many steps of that time.

    A meeting runs beside the steps of its delay; what it takes beyond them is waited for. The links between
    islands carry one meeting after another, so a round is never shorter than all of them.
    """
    applied_s = sum(each.apply_s for each in meetings)
    waited_s = sum(max(each.link_s - each.delay * step_s, 0.0) for each in meetings)
    return max(every * step_s + applied_s + waited_s, sum(each.link_s for each in meetings))
