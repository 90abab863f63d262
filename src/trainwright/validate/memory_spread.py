"""How measured peak memory compares with predicted: what the risk of running out of memory rests on."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.memory_risk import MemorySpread
from trainwright.validate.dataset import Dataset, failed, measured
from trainwright.validate.memory_fit import stacks_of
from trainwright.validate.problem import sources

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
UNKNOWN = "unknown"  # a stack without measured peaks
_LEAST = 0.05  # deviation: allocators and batches differ by as much from run to run
_FAR = 0.5  # a logarithm beyond it is a row that states something else than it ran


def memory_spreads(
    outcomes: Dataset, fitted_bytes: Array, held_out_bytes: Array
) -> Mapping[str, MemorySpread]:
    """A spread for each stack with measured peaks, and one for all others.

    The one for others is of sources that were left out of the fit. A stack's own is of its rows as fitted,
    shrunk towards the other as if that were one more source. Sources count alike.
    """
    peaks, names, every = measured(outcomes)["memory_bytes"], stacks_of(outcomes), sources(outcomes)
    unknown = held_out_spread(outcomes, held_out_bytes, np.isfinite(held_out_bytes))
    found = {UNKNOWN: unknown}
    ratio = np.log(peaks / fitted_bytes)
    for stack in sorted(set(names[np.isfinite(ratio)])):
        own = names == stack
        spread, count = _spread(ratio, every, own), len(set(every[own & np.isfinite(ratio)]))
        variance = (count * spread.deviation**2 + unknown.deviation**2) / (count + 1)
        found[str(stack)] = MemorySpread(
            mean=(count * spread.mean + unknown.mean) / (count + 1),
            deviation=float(np.sqrt(variance)),
            rows=spread.rows + int((failed(outcomes) & own).sum()),
        )
    return found


def held_out_spread(outcomes: Dataset, held_out_bytes: Array, chosen: Mask) -> MemorySpread:
    """The spread of some rows by predictions that did not see their source."""
    ratio = np.log(measured(outcomes)["memory_bytes"] / held_out_bytes)
    return _spread(ratio, sources(outcomes), chosen)


def _spread(ratio: Array, every: NDArray[np.str_], chosen: Mask) -> MemorySpread:
    """Mean and deviation of ratios, far ones drawn in, with sources counted alike."""
    rows = np.flatnonzero(np.isfinite(ratio) & chosen)
    if not len(rows):
        return MemorySpread()
    near, of = np.clip(ratio[rows], -_FAR, _FAR), every[rows]
    weights = np.array([1.0 / (of == name).sum() for name in of])
    mean = float(np.average(near, weights=weights))
    # Of the next source: its own scatter, and what is not known of the mean.
    more = np.sqrt(1.0 + 1.0 / len(set(of)))
    deviation = float(more * np.sqrt(np.average((near - mean) ** 2, weights=weights)))
    return MemorySpread(mean=mean, deviation=max(deviation, _LEAST), rows=len(rows))
