"""Shardings of a recommender with what they take."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.types import Estimates
from trainwright.plan.sharding import Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """Shardings of an instance of `devices` devices with their estimates, the fastest that fits first."""

    devices: int
    global_batch: int
    instances: int  # of this size that the cluster holds beside each other
    shardings: tuple[Sharding, ...]
    estimates: Estimates
    order: NDArray[np.int64]  # of the columns of `estimates`, those that fit first, by time
    fitting: int

    @property
    def step_s(self) -> float:
        """Of the fastest that fits."""
        return float(self.estimates.step_s[self.order[0]])

    @property
    def samples_per_s(self) -> float:
        """Of all instances together, with the fastest sharding that fits."""
        return self.instances * self.global_batch / self.step_s if self.fitting else 0.0
