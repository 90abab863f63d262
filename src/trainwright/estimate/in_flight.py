"""Microbatches that pipeline rows hold in memory at once, by schedule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.plan.strategy import SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMicrobatches:
    """Microbatches that a pipeline row holds at once, in chunks if interleaved."""

    in_flight: Array  # their backward is still to come
    deferred: Array  # of those before, weight gradients are


def held_microbatches(
    strategies: Strategies, microbatches: Array, row: Array
) -> tuple[HeldMicrobatches, HeldMicrobatches, HeldMicrobatches]:
    """What the first row holds, the one between the ends that holds most, and the last one.

    Row j of p goes forward p−1−j times ahead of its first backward, with v chunks 2(p−1−j) + (v−1)p times;
    with GPipe, as often as there are microbatches. ZB-H1 defers weight gradients on row j by j microbatches.
    So the second row holds most, or with deferred gradients `row`.
    """
    pp, vpp = strategies.pp, strategies.vpp
    defers = strategies.schedule == SCHEDULES.index("zb")
    least = np.where(strategies.schedule == SCHEDULES.index("gpipe"), microbatches, 0.0)
    per_row, rest = np.where(vpp > 1, 2.0, 1.0), (vpp - 1.0) * pp + 1.0

    def in_flight(behind: Array | Ints) -> Array:
        """Of a row with `behind` rows after it."""
        chunks = per_row * behind + rest
        return np.maximum(np.minimum(chunks / vpp, microbatches), least)

    def held(place: Array | Ints) -> HeldMicrobatches:
        count = in_flight(np.maximum(pp - 1 - place, 0))
        deferred = np.where(defers, np.minimum(place, microbatches - count), 0.0)
        return HeldMicrobatches(in_flight=count, deferred=deferred)

    first = HeldMicrobatches(in_flight=in_flight(pp - 1), deferred=np.zeros(1))
    return first, held(np.where(defers, row, 1.0)), held(pp - 1)
