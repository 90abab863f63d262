"""How measured peak memory compares with predicted: what the risk of running out of memory rests on."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.memory_risk import MemorySpread
from trainwright.validate.dataset import Dataset, failed, measured, outcome, ran
from trainwright.validate.memory_fit import stacks_of
from trainwright.validate.problem import sources

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
UNKNOWN = "unknown"  # a stack without measured peaks
_FAR = 0.5  # a logarithm beyond it is a row that states something else than it ran
_STRAY = 0.02  # share of rows that ended as they did for another reason than memory
_DOUBTFUL = 0.5  # weight of a failure whose source does not tell crashes from memory errors
_MEANS = np.linspace(-0.3, 0.3, 121)
_DEVIATIONS = np.geomspace(0.05, 0.4, 61)  # allocators and batches differ by the least from run to run


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvidence:
    """Rows of which memory is known: by a measured peak, or by whether they ran.

    `ratio` is the logarithm of measured over predicted memory, `room` that of usable over predicted; not a
    number where it is not known. A row with a peak counts by its peak alone.
    """

    ratio: Array
    room: Array
    ran: Mask
    failed: Mask
    weights: Array
    sources: NDArray[np.str_]

    def take(self, chosen: Mask) -> "MemoryEvidence":
        """Some of the rows, with each source counted alike."""
        known = chosen & (np.isfinite(self.ratio) | (np.isfinite(self.room) & (self.ran | self.failed)))
        names = self.sources[known]
        counts = dict(zip(*np.unique(names, return_counts=True), strict=True))
        return MemoryEvidence(
            ratio=self.ratio[known], room=self.room[known], ran=self.ran[known], failed=self.failed[known],
            weights=self.weights[known] / np.array([counts[name] for name in names]), sources=names,
        )  # fmt: skip


def memory_evidence(outcomes: Dataset, memory_bytes: Array, filled: Array) -> MemoryEvidence:
    """What is known of each row, against predictions of its memory and of the share of it that is filled."""
    doubtful = np.array(["crashed" in outcome(row) for row in outcomes.rows])
    with np.errstate(divide="ignore"):
        ratio = np.clip(np.log(measured(outcomes)["memory_bytes"] / memory_bytes), -_FAR, _FAR)
        room = -np.log(filled)
    return MemoryEvidence(
        ratio=ratio, room=room, ran=ran(outcomes) & ~failed(outcomes), failed=failed(outcomes),
        weights=np.where(doubtful, _DOUBTFUL, 1.0), sources=sources(outcomes),
    )  # fmt: skip


def memory_spreads(
    outcomes: Dataset, own: MemoryEvidence, held_out: MemoryEvidence
) -> Mapping[str, MemorySpread]:
    """A spread for each stack with measured peaks, and one for all others.

    The one for others is of sources that were left out of the fit. A stack's own is of its rows as fitted,
    shrunk towards the other as if that were one more source.
    """
    names = stacks_of(outcomes)
    every = np.ones(len(names), dtype=bool)
    unknown = fit_spread(held_out.take(every))
    found = {UNKNOWN: unknown}
    for stack in sorted(set(names[np.isfinite(own.ratio)])):
        rows = own.take(names == stack)
        spread, count = fit_spread(rows), len(set(rows.sources[np.isfinite(rows.ratio)]))
        variance = (count * spread.deviation**2 + unknown.deviation**2) / (count + 1)
        found[str(stack)] = MemorySpread(
            mean=(count * spread.mean + unknown.mean) / (count + 1),
            deviation=float(np.sqrt(variance)),
            rows=spread.rows,
        )
    return found


def fit_spread(rows: MemoryEvidence) -> MemorySpread:
    """Mean and deviation under which the rows are most likely.

    A peak has the normal density; a row that ran, the probability that its peak was below usable memory; one
    that failed, that it was above. A few rows ended as they did for another reason, so no row counts without
    limit. The deviation is that of the next source: it has what is not known of the mean on top.
    """
    if not len(rows.sources):
        return MemorySpread()
    mean, deviation = _MEANS[:, None, None], _DEVIATIONS[None, :, None]
    peaked = np.isfinite(rows.ratio)
    below = _normal_cdf((np.where(peaked, 0.0, rows.room) - mean) / deviation)
    chance = np.where(rows.failed, 1.0 - below, below)
    density = np.exp(-0.5 * ((np.where(peaked, rows.ratio, 0.0) - mean) / deviation) ** 2) / deviation
    likely = (1.0 - _STRAY) * np.where(peaked, density, chance) + _STRAY
    score = (rows.weights * np.log(likely)).sum(axis=-1)
    at, width = np.unravel_index(int(np.argmax(score)), score.shape)
    more = np.sqrt(1.0 + 1.0 / len(set(rows.sources[peaked]) or {""}))
    return MemorySpread(
        mean=float(_MEANS[at]), deviation=float(more * _DEVIATIONS[width]), rows=len(rows.sources)
    )


def _normal_cdf(values: Array) -> Array:
    """The normal distribution function, by the logistic approximation of Page (1977): within 0.0002."""
    return 1.0 / (1.0 + np.exp(-1.5976 * values - 0.070566 * values**3))
