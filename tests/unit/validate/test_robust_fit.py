"""Positions are found by a robust fit that is pulled to its priors and follows bounds on one side."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from trainwright.validate.robust_fit import SCALE, fit, objective

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Observations that are a smooth function of two positions."""

    target: Array
    side: Array
    weights: Array
    scale: float = SCALE

    def logs(self, x: Array) -> Array:
        t = np.linspace(0.0, 1.0, len(self.target))
        return np.asarray(0.3 * x[0] + 0.2 * x[1] * t + 0.02 * x[0] ** 2)

    def jacobian(self, x: Array, logs: Array) -> Array:
        t = np.linspace(0.0, 1.0, len(self.target))
        return np.stack([np.full(len(t), 0.3 + 0.04 * x[0]), 0.2 * t], axis=1)


def curve(target: Array, side: float = 0.0, weight: float = 50.0) -> Curve:
    return Curve(target=target, side=np.full(len(target), side), weights=np.full(len(target), weight))


def quiet(text: str) -> None:
    """Say nothing."""


TRUTH = np.array([1.2, -0.7])


def planted(count: int = 40) -> Array:
    return curve(np.zeros(count)).logs(TRUTH)


def test_planted_positions_are_found_through_a_bent_model() -> None:
    found = fit(curve(planted()), np.zeros(2), 20, quiet)
    assert found.x == pytest.approx(TRUTH, abs=0.02)


def test_a_few_wild_observations_hardly_matter() -> None:
    target = planted()
    target[::10] += 3.0
    found = fit(curve(target), np.zeros(2), 20, quiet)
    assert found.x == pytest.approx(TRUTH, abs=0.15)


def test_without_evidence_the_prior_holds() -> None:
    found = fit(curve(planted(), weight=0.0), np.array([0.5, 0.5]), 20, quiet)
    assert found.x == pytest.approx([0.0, 0.0], abs=1e-6)


def test_little_evidence_is_shrunk_to_the_prior() -> None:
    found = fit(curve(planted(3), weight=0.01), np.zeros(2), 20, quiet)
    assert 0.0 < found.x[0] < 0.9 * TRUTH[0]


@pytest.mark.parametrize(("side", "moves"), [(1.0, False), (-1.0, True)])
def test_a_bound_pulls_from_one_side_only(side: float, moves: bool) -> None:
    # At the prior all logarithms are 0, below the targets: allowed where they must not be exceeded.
    found = fit(curve(np.full(20, 0.4), side=side), np.zeros(2), 20, quiet)
    assert (abs(found.x).max() > 0.5) == moves


def test_no_round_makes_the_objective_worse() -> None:
    model, costs = curve(planted()), []
    for rounds in range(1, 5):
        found = fit(model, np.zeros(2), rounds, quiet)
        costs.append(objective(model, found.x, found.logs))
    assert costs == sorted(costs, reverse=True)
