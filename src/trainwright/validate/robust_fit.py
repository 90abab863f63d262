"""The fit of positions to observations with SciPy's robust least squares, on a model that is slow to derive.

Each round derives the model once, solves the linear model for a robust loss inside a box around the
positions, and takes the solution if the model itself is better there; else the box shrinks. Positions count
in spreads of their priors, and each is pulled to 0 by its square.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Say = Callable[[str], None]
SCALE = 0.06  # of runs: logarithms that are further off count linearly
FARTHEST = 4.0  # spreads from its start that a number may move
_ENOUGH = 1e-3  # of the objective: a round that gains less is the last
_INNER_STEPS = 60


class Model(Protocol):
    """Observations to be predicted: logarithms with targets, and weights, of which 0 means not asked for.

    `side` is 0 where a target is to be hit, 1 where it must not be exceeded, -1 where it must be reached;
    what is further off than `scale` counts linearly.
    """

    @property
    def target(self) -> Array: ...

    @property
    def side(self) -> Array: ...

    @property
    def weights(self) -> Array: ...

    @property
    def scale(self) -> float: ...

    def logs(self, x: Array) -> Array: ...

    def jacobian(self, x: Array, logs: Array) -> Array: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A model near some positions: what it predicts there, and how that changes."""

    x: Array
    logs: Array
    jacobian: Array

    def at(self, x: Array) -> Array:
        """Predictions of the linear model."""
        return np.asarray(self.logs + self.jacobian @ (x - self.x))


def off(model: Model, logs: Array) -> Array:
    """How far each observation is off; 0 if it is not asked for or on the right side."""
    difference = np.where(model.weights > 0, logs - model.target, 0.0)
    return np.where(model.side * difference < 0, 0.0, difference)


def objective(model: Model, x: Array, logs: Array) -> float:
    """The robust loss of what is off, and the squared distances from the priors."""
    r = off(model, logs) / model.scale
    return float((model.weights * 2.0 * (np.sqrt(1.0 + r * r) - 1.0)).sum() + (x * x).sum())


def solve_linear(model: Model, near: Linear, x: Array, reach: float = FARTHEST) -> Array:
    """The best positions of a linear model, within a reach of given ones."""
    from scipy.optimize import least_squares

    asked = model.weights > 0
    weights, jacobian = model.weights[asked], near.jacobian[asked] / model.scale
    side, size = model.side[asked], len(x)
    base = (near.logs - model.target)[asked] / model.scale - jacobian @ near.x

    def residuals(at: Array) -> Array:
        difference = base + jacobian @ at
        return np.concatenate([np.where(side * difference < 0, 0.0, difference), at])

    def derivatives(at: Array) -> Array:
        pulls = side * (base + jacobian @ at) >= 0
        return np.concatenate([jacobian * pulls[:, None], np.eye(size)])

    def loss(squares: Array) -> Array:
        """Of observations the robust loss, of positions the square; with the first two derivatives."""
        roots = np.sqrt(1.0 + squares[:-size])
        robust = weights * np.stack([2.0 * (roots - 1.0), 1.0 / roots, -0.5 / roots**3])
        plain = np.stack([squares[-size:], np.ones(size), np.zeros(size)])
        return np.concatenate([robust, plain], axis=1)

    low, high = np.maximum(x - reach, -FARTHEST), np.minimum(x + reach, FARTHEST)
    found = least_squares(
        residuals, np.clip(x, low + 1e-9, high - 1e-9), derivatives, bounds=(low, high), loss=loss,  # type: ignore[arg-type]
        max_nfev=_INNER_STEPS, ftol=1e-6, xtol=1e-6, gtol=1e-6,
    )  # fmt: skip
    return np.asarray(found.x)


def fit(model: Model, start: Array, rounds: int, say: Say) -> Linear:
    """The positions that predict the observations best, with the linear model there."""
    x, reach = np.asarray(start, dtype=float), 2.0
    logs = model.logs(x)
    cost = objective(model, x, logs)
    for number in range(rounds):
        near = Linear(x=x, logs=logs, jacobian=model.jacobian(x, logs))
        before = cost
        for _ in range(3):
            tried = solve_linear(model, near, x, reach)
            tried_logs = model.logs(tried)
            tried_cost = objective(model, tried, tried_logs)
            if tried_cost < cost:
                x, logs, cost = tried, tried_logs, tried_cost
                break
            reach /= 4.0
        say(f"round {number + 1}: objective {cost:.1f}")
        if before - cost <= _ENOUGH * cost:
            break
    return Linear(x=x, logs=logs, jacobian=model.jacobian(x, logs))
