"""DIANA, EF21 and MARINA on quadratics: formula, all draws there are, and trials agree."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from trainwright.algorithm.theory.guarantees import diana, ef21, marina
from trainwright.algorithm.theory.moments import Round
from trainwright.algorithm.theory.quadratic import Quadratic, random_quadratic
from trainwright.algorithm.theory.remembering import Remembering
from trainwright.algorithm.theory.simulate import simulate_compressed
from trainwright.errors import BadInput

KINDS: list[Any] = ["diana", "ef21-rand", "marina", "marina-rand"]
DIMS, WORKERS, KEPT = 4, 2, 2
PAIR = random_quadratic(DIMS, WORKERS, 0)  # other L_i and b_i at both workers
MANY = random_quadratic(6, 3, 1)


def one_round(kind: str, z: np.ndarray, step: float, masks: np.ndarray, coin: bool) -> np.ndarray:
    """z after a round of a method on PAIR, as its authors write it."""
    x, memory = z[:DIMS], z[DIMS:]
    bent, slope = PAIR.curvature, PAIR.slope
    if kind in ("diana", "ef21-rand"):
        known = memory.reshape(WORKERS, DIMS)
        new = masks * (bent @ x - slope - known)
        told = known + (2.0 * new if kind == "diana" else new)  # d/K = 2
        return np.concatenate([x - step * told.mean(0), (known + new).ravel()])
    ahead = x - step * memory
    if coin:
        return np.concatenate([ahead, (bent @ ahead - slope).mean(0)])
    return np.concatenate([ahead, memory + (2.0 * masks * (bent @ ahead - bent @ x)).mean(0)])


def every_round(method: Remembering, z: np.ndarray, step: float) -> Iterator[tuple[float, np.ndarray]]:
    """Chance and result of every draw: 36 pairs of masks, or 24 orders; with a coin of 1/2 for MARINA."""
    masks = method.sketch.every()
    coins = (False, True) if method.kind.startswith("marina") else (False,)
    for each in masks:
        for coin in coins:
            yield 1.0 / len(masks) / len(coins), one_round(method.kind, z, step, each, coin)


def size(turn: Round, rounds: int) -> float:
    """E|z - z*|^2 after some rounds of a deviation like the identity's."""
    moment = np.eye(turn.dims)
    for _ in range(rounds):
        moment = turn.moved(moment)
    return float(np.trace(moment))


@pytest.mark.parametrize("kind", KINDS)
def test_means_and_second_moments_are_those_of_all_draws(kind: Any) -> None:
    method, step = Remembering(quadratic=PAIR, kept=KEPT, kind=kind), 0.2
    turn, source = method.at(step), np.random.default_rng(1)
    for _ in range(5):
        z = source.normal(size=turn.dims)
        gap = z - turn.fixed_point
        drawn = [(chance, after - turn.fixed_point) for chance, after in every_round(method, z, step)]
        mean = sum(chance * after for chance, after in drawn)
        square = sum(chance * np.outer(after, after) for chance, after in drawn)
        assert turn.mean @ gap == pytest.approx(mean, abs=1e-12)
        assert turn.moved(np.outer(gap, gap)) == pytest.approx(square, abs=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_expected_distance_is_that_of_all_ways_to_draw_twice(kind: Any) -> None:
    method, step, x = Remembering(quadratic=PAIR, kept=KEPT, kind=kind), 0.2, np.full(DIMS, 2.0)
    ways = [
        (first * second, after)
        for first, between in every_round(method, method.start(x), step)
        for second, after in every_round(method, between, step)
    ]
    assert sum(chance for chance, _ in ways) == pytest.approx(1.0)
    exact = sum(chance * ((after[:DIMS] - PAIR.minimum) ** 2).sum() for chance, after in ways)
    found = method.expected(x, step, 2)
    assert found[0] == pytest.approx(((x - PAIR.minimum) ** 2).sum())
    assert found[2] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_trials_are_as_far_from_the_minimum_as_expected(kind: Any) -> None:
    method, trials, rounds = Remembering(quadratic=MANY, kept=2, kind=kind), 10_000, 12
    step = 0.5 * method.largest_step()
    found: list[tuple[float, float]] = []

    def watch(_: int, x: np.ndarray) -> None:
        squares = ((x - MANY.minimum) ** 2).sum(1)
        found.append((squares.mean(), squares.std() / trials**0.5))

    simulate_compressed(MANY, kind, 2, np.ones((trials, 6)), step, rounds, seed=2, watch=watch)
    expected = method.expected(np.ones(6), step, rounds)[1:]
    for (mean, error), exact in zip(found, expected, strict=True):
        assert mean == pytest.approx(exact, abs=5 * error + 1e-12 * exact)


@pytest.mark.parametrize("kind", KINDS)
def test_no_draw_moves_the_minimum_though_workers_disagree_there(kind: Any) -> None:
    method, step = Remembering(quadratic=PAIR, kept=KEPT, kind=kind), 0.2
    assert np.abs(PAIR.gradients(PAIR.minimum)).max() > 0.1
    z = method.fixed_point()
    for _, after in every_round(method, z, step):
        assert after == pytest.approx(z, abs=1e-12)
    turn = method.at(step)
    assert np.abs(method.bias()).max() == 0.0
    assert np.abs(turn.noise).max() == pytest.approx(0.0, abs=1e-25)
    assert np.abs(turn.covariance()).max() == pytest.approx(0.0, abs=1e-25)


@pytest.mark.parametrize("kind", KINDS)
def test_the_square_rate_is_how_exact_moments_shrink(kind: Any) -> None:
    method = Remembering(quadratic=PAIR, kept=KEPT, kind=kind)
    most = method.largest_step()
    for share in (0.2, 0.7, 1.1):
        turn = method.at(share * most)
        measured = (size(turn, 600) / size(turn, 500)) ** 0.01
        assert turn.square_rate() == pytest.approx(measured, rel=1e-4)
        assert turn.square_rate() == pytest.approx(
            np.abs(np.linalg.eigvals(turn.operator())).max(), rel=1e-10
        )
        assert turn.square_rate() >= turn.rate() ** 2 - 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_moments_shrink_just_below_the_largest_step_and_grow_just_above_it(kind: Any) -> None:
    for quadratic in (PAIR, MANY):
        method = Remembering(quadratic=quadratic, kept=2, kind=kind)
        most = method.largest_step()
        below, above = method.at(0.99 * most), method.at(1.01 * most)
        assert size(below, 3000) < 0.1 * size(below, 2000)
        assert size(above, 3000) > 10 * size(above, 2000)
        with pytest.raises(BadInput, match="is not stable"):
            above.covariance()


@pytest.mark.parametrize("kind", KINDS)
def test_every_smaller_step_is_stable_and_no_larger_one(kind: Any) -> None:
    method = Remembering(quadratic=PAIR, kept=KEPT, kind=kind)
    most = method.largest_step()
    for share in (0.001, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 4.0):
        assert (method.at(share * most).square_rate() < 1.0) == (share < 1.0)


def test_the_mean_of_diana_and_marina_is_gradient_descent_beside_memory_that_fades() -> None:
    for kind, step in ((kind, step) for kind in KINDS if kind != "ef21-rand" for step in (0.1, 0.4, 0.9)):
        bent = np.abs(1.0 - step * np.linalg.eigvalsh(MANY.mean_curvature)).max()
        method = Remembering(quadratic=MANY, kept=2, kind=kind)
        assert method.at(step).rate() == pytest.approx(max(bent, 1.0 - 2 / 6))


def test_the_mean_of_ef21_is_stable_beyond_gradient_descents_limit() -> None:
    # (2 - p)/p = 5 times as far for p = 1/3, but in the mean square much less far.
    method, limit = (
        Remembering(quadratic=MANY, kept=2, kind="ef21-rand"),
        2.0 / np.linalg.eigvalsh(MANY.mean_curvature)[-1],
    )
    assert method.at(4.99 * limit).rate() < 1.0 < method.at(5.01 * limit).rate()
    assert method.largest_step() < limit


@pytest.mark.parametrize("kind", ["diana", "ef21-rand", "marina-rand"])
def test_keeping_everything_is_gradient_descent(kind: Any) -> None:
    method, values = Remembering(quadratic=MANY, kept=6, kind=kind), np.linalg.eigvalsh(MANY.mean_curvature)
    assert method.largest_step() == pytest.approx(2.0 / values[-1])
    assert method.at(0.3).square_rate() == pytest.approx(np.abs(1.0 - 0.3 * values).max() ** 2)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proved_is_no_better_than_what_is_exact(seed: int) -> None:
    q, omega, share = random_quadratic(6, 3, seed, spread=3.0**seed), 2.0, 1 / 3
    claims: dict[Any, Any] = {
        "diana": diana(q, omega),
        "ef21-rand": ef21(q, share),
        "marina": marina(q, 1.0, share),
        "marina-rand": marina(q, omega / 3, share),
    }
    for kind, claim in claims.items():
        method = Remembering(quadratic=q, kept=2, kind=kind)
        assert claim.step < method.largest_step()
        assert method.at(claim.step).square_rate() <= claim.rate


@pytest.mark.parametrize(
    ("kind", "most", "proved", "rate"),
    [("diana", 0.243, 0.0381, 0.902), ("ef21-rand", 0.414, 0.0258, 0.924), ("marina", 0.592, 0.0786, 0.803),
     ("marina-rand", 0.359, 0.0874, 0.796)],
)  # fmt: skip
def test_steps_and_rates_are_those_of_the_document(
    kind: Any, most: float, proved: float, rate: float
) -> None:
    method = Remembering(quadratic=random_quadratic(8, 4, 0), kept=2, kind=kind)
    assert method.largest_step() == pytest.approx(most, abs=5e-4)
    assert method.at(proved).square_rate() == pytest.approx(rate, abs=1e-3)


def test_equal_workers_of_perm_k_tell_marina_everything() -> None:
    same: Quadratic = random_quadratic(6, 3, 3, kind="same")
    method, values = (
        Remembering(quadratic=same, kept=2, kind="marina"),
        np.linalg.eigvalsh(same.mean_curvature),
    )
    assert method.largest_step() == pytest.approx(2.0 / values[-1])


def test_what_no_sketch_can_keep_is_refused() -> None:
    with pytest.raises(BadInput, match="are not 1/3 of them"):
        Remembering(quadratic=MANY, kept=3, kind="marina")
    with pytest.raises(BadInput, match="are not 1 to 6"):
        Remembering(quadratic=MANY, kept=7, kind="diana")
