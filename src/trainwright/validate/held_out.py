"""How predictions fare on sources that were left out of the fit, and the intervals that follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import Constants, Interval, rests_on
from trainwright.validate.calibrate import leave_out
from trainwright.validate.dataset import Dataset, Predictions, measured, predict, stack_name
from trainwright.validate.forked_map import forked_map
from trainwright.validate.problem import Fit, Say, groups_of, sources

Array = NDArray[np.float64]
_NARROWER = {"both": (), "device": ("both",), "stack": ("both",), "neither": ("device", "stack")}
_INSIDE = 0.9
_WIDER = 1.15  # on each side, for each thing that is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """What constants that never saw a row's source predict for it.

    `ratio` is measured over predicted step time of each run, `basis` what its constants rested on;
    `memory_bytes` and `fits` are of the runs, then of the failures.
    """

    ratio: Array
    basis: tuple[str, ...]
    memory_bytes: Array
    fits: NDArray[np.bool_]


def hold_out(
    dataset: Dataset, outcomes: Dataset, without: Callable[[str], Constants], whole: Fit, say: Say
) -> HeldOut:
    """Predict each source by constants fitted to all others; `without` gives those of memory.

    `outcomes` are the runs of the dataset, then the failures.
    """
    names, truth = sources(dataset), measured(dataset)["step_s"]
    every = sources(outcomes)
    ratio, basis = np.full(len(names), np.nan), [""] * len(names)
    memory, fits = np.full(len(every), np.nan), np.zeros(len(every), dtype=bool)

    def left_out(source: str) -> tuple[Constants, Predictions]:
        constants = leave_out(dataset, without(source), whole, source)
        groups = groups_of(outcomes, every == source)
        return constants, predict(outcomes, constants.stack, constants.efficiency, groups)

    each_source = sorted(set(names) - {""})  # rows that cannot be read have none
    for source, (constants, found) in zip(each_source, forked_map(left_out, each_source), strict=True):
        own = every == source
        memory[own], fits[own] = found.memory_bytes[own], found.fits[own]
        predicted = found.step_s
        for index in np.flatnonzero(names == source):
            case = dataset.cases[index]
            if case is not None:
                ratio[index] = truth[index] / predicted[index]
                basis[index] = rests_on(
                    constants.efficiency(case.cluster.device), constants.stack(stack_name(case))
                )
        error = np.nanmedian(np.abs(1.0 / ratio[names == source] - 1.0))
        say(f"without {source}: median error {error:.1%}")
    return HeldOut(ratio=ratio, basis=tuple(basis), memory_bytes=memory, fits=fits)


def intervals(dataset: Dataset, held: HeldOut) -> Mapping[str, Interval]:
    """Nine-in-ten intervals by what a prediction rests on; less knowledge widens.

    Sources count alike: the next prediction is of another source, not of another run of the largest one.
    """
    names, basis = sources(dataset), np.array(held.basis)
    result: dict[str, Interval] = {}
    for kind, narrower in _NARROWER.items():
        chosen = (basis == kind) & np.isfinite(held.ratio)
        lows: list[float] = []
        highs: list[float] = []
        if chosen.any():
            weights = np.array([1.0 / (chosen & (names == name)).sum() for name in names[chosen]])
            low, high = _shortest(held.ratio[chosen], weights)
            lows.append(low)
            highs.append(high)
        # Where less is known than of any run at hand, what was held out by chance must not narrow the range.
        wider = _WIDER if narrower else 1.0
        spread = [result[name] for name in narrower]
        low = min([*lows, *(each.low / wider for each in spread)])
        high = max([*highs, *(each.high * wider for each in spread)])
        result[kind] = Interval(low=low, high=high)
    return result


def _shortest(values: Array, weights: Array) -> tuple[float, float]:
    """The shortest interval, by its logarithm, that holds nine tenths of the weight."""
    order = np.argsort(values)
    ordered, reached = values[order], np.cumsum(weights[order]) / weights.sum()
    before = np.concatenate([[0.0], reached[:-1]])
    ends = np.searchsorted(reached, before + _INSIDE - 1e-9)
    starts = np.flatnonzero(ends < len(ordered))
    widths = np.log(ordered[ends[starts]] / ordered[starts])
    best = starts[np.argmin(widths)]
    return float(ordered[best]), float(ordered[ends[best]])
