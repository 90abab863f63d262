"""How predictions fare on sources that were left out of the fit, and the ranges that follow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.load import BASES, NINE_IN_TEN, Constants, rests_on
from trainwright.validate.calibrate import TimeModel, leave_out
from trainwright.validate.dataset import Dataset, Predictions, measured, predict, stack_name
from trainwright.validate.forked_map import forked_map
from trainwright.validate.memory_fit import with_memory_of
from trainwright.validate.problem import groups_of, sources
from trainwright.validate.robust_fit import Linear, Say

Array = NDArray[np.float64]
_NARROWER = {"both": "", "device": "both", "stack": "both", "neither": "device"}
_WIDER = 1.25  # for each thing that is not known, where no source says how much
_WITHIN = 1.4826  # of a median absolute deviation, to a normal distribution's deviation
_INSIDE = 0.9
_LEAST = 0.03  # deviation of a level: clocks and networks of clusters differ by as much
_FEW = 4  # sources of a kind that its deviation needs
_PRIOR_RUNS = 10.0  # as many runs as the scatter of all stacks counts for in that of one


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
    outcomes: Dataset, without: Callable[[str], Constants], model: TimeModel, near: Linear, say: Say
) -> HeldOut:
    """Predict each source by constants fitted to all others; `without` gives those of memory.

    `outcomes` are the runs of the model's dataset, then the failures.
    """
    dataset = model.dataset
    names, truth = sources(dataset), measured(dataset)["step_s"]
    every = sources(outcomes)
    ratio, basis = np.full(len(names), np.nan), [""] * len(names)
    memory, fits = np.full(len(every), np.nan), np.zeros(len(every), dtype=bool)

    def left_out(source: str) -> tuple[Constants, Predictions]:
        constants = with_memory_of(leave_out(model, near, source), without(source))
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


def with_ranges(constants: Constants, dataset: Dataset, held: HeldOut) -> Constants:
    """The constants with the deviations that ranges are made of.

    Runs scatter within a source by a deviation of their stack's, shrunk to that of all stacks. A source's
    level deviates by as much as makes the range hold nine in ten runs in the median over sources, by what
    is known of their stack and device.
    """
    names, own = sources(dataset), np.array([stack_name(case) if case else "" for case in dataset.cases])
    logs = np.log(held.ratio)
    inner = np.full(len(logs), np.nan)
    for name in set(names):
        runs = (names == name) & np.isfinite(logs)
        if runs.sum() > 1:
            inner[runs] = logs[runs] - np.median(logs[runs])
    overall = _deviation(inner[np.isfinite(inner)])
    stacks = {
        name: replace(each, scatter=_shrunk(inner[(own == name) & np.isfinite(inner)], overall))
        for name, each in constants.stacks.items()
    }
    scatter = np.array([stacks[name].scatter if name in stacks else overall for name in own])
    return replace(constants, stacks=stacks, level_deviations=_level_deviations(logs, scatter, names, held))


def _level_deviations(
    logs: Array, scatter: Array, names: NDArray[np.str_], held: HeldOut
) -> Mapping[str, float]:
    basis = np.array(held.basis)
    result: dict[str, float] = {}
    for kind in BASES:
        chosen = (basis == kind) & np.isfinite(logs)
        each = [chosen & (names == name) for name in sorted(set(names[chosen]))]
        found = _least_deviation([(logs[own], scatter[own]) for own in each]) if len(each) >= _FEW else 0.0
        least = result[_NARROWER[kind]] * _WIDER if _NARROWER[kind] else _LEAST
        result[kind] = max(found, least)
    return result


def _least_deviation(runs: list[tuple[Array, Array]]) -> float:
    """The least deviation of levels at which ranges hold nine in ten runs, in the median over sources."""
    for deviation in np.arange(_LEAST, 1.0, 0.005):
        shares = [
            np.mean(np.abs(logs) <= NINE_IN_TEN * np.hypot(deviation, scatter)) for logs, scatter in runs
        ]
        if np.median(shares) >= _INSIDE:
            return float(deviation)
    return 1.0


def _deviation(values: Array) -> float:
    return float(_WITHIN * np.median(np.abs(values))) if len(values) else 0.0


def _shrunk(values: Array, overall: float) -> float:
    """The deviation of some runs, shrunk to that of all by how few they are."""
    weight = len(values) / (len(values) + _PRIOR_RUNS)
    return float(np.sqrt(weight * _deviation(values) ** 2 + (1.0 - weight) * overall**2))
