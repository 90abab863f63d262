"""The steps of a run of subnetworks: exact ones at both ends, rounds between."""

from dataclasses import dataclass
from typing import Literal

Scale = Literal["calibrated", "share", "none"]
EXPONENTS = tuple(i / 8 for i in range(13))  # of the shares, tried when a merged model is calibrated
Phase = Literal["warmup", "apart", "finish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Rounds of `every` steps after the first `warmup` and before the last `finish` of `steps`."""

    every: int
    warmup: int
    finish: int
    steps: int

    def phase(self, step: int) -> Phase:
        """What a step is for."""
        if step < self.warmup:
            return "warmup"
        return "finish" if step >= self.steps - self.finish else "apart"

    def number(self, step: int) -> int:
        """Which round a step belongs to."""
        return max(step - self.warmup, 0) // self.every

    def opens(self, step: int) -> bool:
        """Whether a round begins with a step."""
        return (step - self.warmup) % self.every == 0

    def fetches(self, step: int) -> bool:
        """Whether slices are fetched before a step; those of the first round are there."""
        return self.opens(step) and step > self.warmup

    def ends(self, step: int) -> bool:
        """Whether slices are given back after a step."""
        return self.opens(step + 1) or step + 1 == self.steps - self.finish

    def merges(self, step: int) -> bool:
        """Whether a step is the first that trains the merged model."""
        return self.warmup < step == self.steps - self.finish
