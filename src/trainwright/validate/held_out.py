"""How predictions fare on sources that were left out of the fit, and the intervals that follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import Constants, Interval, rests_on
from trainwright.validate.calibrate import Fit, leave_out, sources
from trainwright.validate.dataset import Dataset, measured, predict, stack_name

Array = NDArray[np.float64]
_NARROWER = {"both": (), "device": ("both",), "stack": ("both",), "neither": ("device", "stack")}
_OUTSIDE = 0.05  # on each side of an interval


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Measured over predicted of each row by constants that never saw its source, and what they rested on."""

    ratio: Array
    basis: tuple[str, ...]


def hold_out(dataset: Dataset, prior: Constants, whole: Fit, say: Callable[[str], None]) -> HeldOut:
    """Predict each source by constants fitted to all others."""
    names, truth = sources(dataset), measured(dataset)["step_s"]
    ratio, basis = np.full(len(names), np.nan), [""] * len(names)
    for source in sorted(set(names)):
        constants = leave_out(dataset, prior, whole, source)
        groups = [i for i, group in enumerate(dataset.groups) if (names[list(group.indices)] == source).any()]
        predicted = predict(dataset, constants.stack, constants.efficiency, groups).step_s
        for index in np.flatnonzero(names == source):
            case = dataset.cases[index]
            if case is not None:
                ratio[index] = truth[index] / predicted[index]
                basis[index] = rests_on(
                    constants.efficiency(case.cluster.device), constants.stack(stack_name(case))
                )
        error = np.nanmedian(np.abs(1.0 / ratio[names == source] - 1.0))
        say(f"without {source}: median error {error:.1%}")
    return HeldOut(ratio=ratio, basis=tuple(basis))


def intervals(dataset: Dataset, held: HeldOut) -> Mapping[str, Interval]:
    """Nine-in-ten intervals by what a prediction rests on; every source counts alike, less knowledge is never narrower."""
    names, basis = sources(dataset), np.array(held.basis)
    result: dict[str, Interval] = {}
    for kind, narrower in _NARROWER.items():
        chosen = (basis == kind) & np.isfinite(held.ratio)
        lows = [result[name].low for name in narrower]
        highs = [result[name].high for name in narrower]
        if chosen.any():
            weights = np.array([1.0 / (chosen & (names == name)).sum() for name in names[chosen]])
            lows.append(_quantile(held.ratio[chosen], weights, _OUTSIDE))
            highs.append(_quantile(held.ratio[chosen], weights, 1.0 - _OUTSIDE))
        result[kind] = Interval(low=min(lows), high=max(highs))
    return result


def _quantile(values: Array, weights: Array, share: float) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(reached, share)])
