"""The fit of numbers to rows: a robust loss of residuals, and each number held to its prior."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import Constants
from trainwright.validate.dataset import Dataset, Predictions, predict
from trainwright.validate.forked_map import forked_map
from trainwright.validate.robust_fit import FARTHEST, SCALE, Say, fit

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One fitted number: where it lives, how it is scaled, and how far it may stray from its prior."""

    kind: str  # "efficiency" or "stack"
    unit: str
    field: str
    prior: float
    spread: float
    share: bool = False  # moves by itself and stays between 0 and 1; else its logarithm moves

    def value(self, x: float) -> float:
        """The constant at position `x`, in spreads from the prior."""
        if self.share:
            return float(np.clip(self.prior + self.spread * x, 0.0, 1.0))
        return float(self.prior * np.exp(self.spread * x))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The end of a fit: its parameters and their positions."""

    parameters: tuple[Parameter, ...]
    x: Array


def parameters_of(
    kind: str, unit: str, holder: Efficiency | Stack, spreads: Mapping[str, float], shares: Container[str]
) -> tuple[Parameter, ...]:
    """The numbers of a device or a stack that may move, by their spreads."""
    return tuple(
        Parameter(
            kind=kind,
            unit=unit,
            field=field,
            prior=getattr(holder, field),
            spread=spread,
            share=field in shares,
        )
        for field, spread in spreads.items()
    )


def set_apart(stack: Stack, spreads: Mapping[str, float]) -> Mapping[str, float]:
    """Of the spreads, those of numbers that the stack's prior sets."""
    plain = Stack(name="")
    return {name: s for name, s in spreads.items() if getattr(stack, name) != getattr(plain, name)}


def with_values(prior: Constants, parameters: Sequence[Parameter], x: Array) -> Constants:
    """The constants at a position of the fit."""
    efficiencies, stacks = dict(prior.efficiencies), dict(prior.stacks)
    for parameter, position in zip(parameters, x, strict=True):
        change = {parameter.field: parameter.value(float(position))}
        if parameter.kind == "efficiency":
            efficiencies[parameter.unit] = replace(efficiencies[parameter.unit], **change)  # type: ignore[arg-type]
        else:
            stacks[parameter.unit] = replace(stacks[parameter.unit], **change)  # type: ignore[arg-type]
    return replace(prior, efficiencies=efficiencies, stacks=stacks)


def unit_of(constants: Constants, device: Device) -> str:
    """The unit whose constants a device uses."""
    return next(unit for unit in (device.name, device.family, "class") if unit in constants.efficiencies)


def sources(dataset: Dataset) -> NDArray[np.str_]:
    """The source of each row."""
    return np.array([case.source if case else "" for case in dataset.cases])


def row_weights(dataset: Dataset, rows: Mask) -> Array:
    """Weights that let each source count about alike: n^-0.35 per row."""
    names = sources(dataset)
    weights = np.zeros(len(names))
    for source in set(names[rows]):
        chosen = rows & (names == source)
        weights[chosen] = chosen.sum() ** -0.35
    return weights


def groups_of(dataset: Dataset, rows: Mask) -> tuple[int, ...]:
    """The groups that have some of the rows."""
    return tuple(i for i, group in enumerate(dataset.groups) if rows[list(group.indices)].any())


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Observations to be predicted, and the numbers that may move.

    Observations are logarithms; one with a weight of 0 is not asked for. `side` is 0 where the target is to
    be hit, 1 where it must not be exceeded, -1 where it must be reached.
    """

    dataset: Dataset
    prior: Constants
    parameters: tuple[Parameter, ...]
    groups: tuple[int, ...]
    observe: Callable[[Predictions, Constants], Array]
    target: Array
    side: Array
    weights: Array
    scale: float = SCALE

    def logs(self, x: Array, groups: Sequence[int] | None = None) -> Array:
        """What is predicted for each observation; not a number outside of the groups."""
        constants = with_values(self.prior, self.parameters, x)
        used = self.groups if groups is None else groups
        return self.observe(predict(self.dataset, constants.stack, constants.efficiency, used), constants)

    def jacobian(self, x: Array, logs: Array) -> Array:
        """One column per parameter; only groups that use its unit are predicted again."""
        columns = forked_map(partial(self._column, x, logs), range(len(self.parameters)))
        return np.stack(columns, axis=1)

    def _column(self, x: Array, logs: Array, index: int, delta: float = 0.05) -> Array:
        parameter = self.parameters[index]
        groups = [i for i in self.groups if self._uses(i, parameter)]
        moved = x.copy()
        at_end = parameter.share and parameter.value(x[index] + delta) >= 1.0
        moved[index] += -delta if at_end else delta
        changed = self.logs(moved, groups)
        asked = (self.weights > 0) & np.isfinite(changed)
        return np.where(asked, (changed - logs) / (moved[index] - x[index]), 0.0)

    def _uses(self, index: int, parameter: Parameter) -> bool:
        group = self.dataset.groups[index]
        if parameter.kind == "stack":
            return group.stack == parameter.unit
        return unit_of(self.prior, group.case.cluster.device) == parameter.unit


def solve(problem: Problem, rounds: int, say: Say, start: Constants | None = None) -> Fit:
    """Numbers that predict the observations best under a robust loss and the priors.

    It starts from the priors, or from other constants, which saves rounds if they are near.
    """
    x = np.zeros(len(problem.parameters)) if start is None else _positions(problem.parameters, start)
    return Fit(parameters=problem.parameters, x=fit(problem, x, rounds, say).x)


def _positions(parameters: Sequence[Parameter], constants: Constants) -> Array:
    """Where some constants lie, in spreads from the priors; at a prior where they lack one."""
    result = np.zeros(len(parameters))
    for index, parameter in enumerate(parameters):
        holders = constants.efficiencies if parameter.kind == "efficiency" else constants.stacks
        if parameter.unit not in holders:
            continue
        value = float(getattr(holders[parameter.unit], parameter.field))
        if parameter.share:
            result[index] = (value - parameter.prior) / parameter.spread
        elif value > 0 and parameter.prior > 0:
            result[index] = np.log(value / parameter.prior) / parameter.spread
    return np.clip(result, -FARTHEST, FARTHEST)
