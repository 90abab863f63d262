"""Results on independent subnetworks and compressed gradients: formula, enumeration and trials agree."""

from typing import Any

import numpy as np
import pytest

from trainwright.algorithm.theory.compressed import CompressedDescent
from trainwright.algorithm.theory.guarantees import compressed_descent, diana, ef21, marina
from trainwright.algorithm.theory.kept import Kept
from trainwright.algorithm.theory.moments import Recursion
from trainwright.algorithm.theory.quadratic import Quadratic, homogeneous, random_quadratic
from trainwright.algorithm.theory.scale import best_scale, equicorrelated_scale
from trainwright.algorithm.theory.simulate import merged, simulate_compressed, simulate_subnetworks
from trainwright.algorithm.theory.sketch import Windows
from trainwright.algorithm.theory.subnetworks import Subnetworks
from trainwright.algorithm.theory.theorems import OneCoordinate, WithoutSlope
from trainwright.errors import BadInput

DIMS, WORKERS = 6, 3
MIXED = random_quadratic(DIMS, WORKERS, 0)  # other L_i and b_i at every worker
METHODS = [
    Subnetworks(quadratic=MIXED, held=2),
    Subnetworks(quadratic=MIXED, held=2, scaled=True),
    Subnetworks(quadratic=MIXED, held=3),
    Subnetworks(quadratic=MIXED, held=4),
    Subnetworks(quadratic=random_quadratic(DIMS, WORKERS, 1, kind="same"), held=2),
]


@pytest.mark.parametrize("method", METHODS)
def test_1_the_mean_matrix_mixes_curvature_and_its_diagonal(method: Subnetworks) -> None:
    matrices, slopes = method.sampled(method.windows.every())  # all 720 orders
    assert matrices.mean(0) == pytest.approx(method.mean_matrix(), abs=1e-12)
    assert slopes.mean(0) == pytest.approx(method.quadratic.mean_slope, abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_2_second_moments_are_those_of_all_orders(method: Subnetworks) -> None:
    matrices, slopes = method.sampled(method.windows.every())
    recursion = method.recursion()
    moment = np.cov(np.random.default_rng(1).normal(size=(DIMS, 20)))
    exact = np.einsum("kij,jl,kml->im", matrices, moment, matrices) / len(matrices)
    assert recursion.conjugate(moment) == pytest.approx(exact, abs=1e-10)
    left = slopes - matrices @ recursion.fixed_point()
    assert recursion.noise(recursion.fixed_point()) == pytest.approx(left.T @ left / len(left), abs=1e-10)


@pytest.mark.parametrize(("step", "method"), [(0.1, METHODS[0]), (0.3, METHODS[0]), (0.3, METHODS[3])])
def test_2_trials_gather_around_the_fixed_point_as_the_covariance_says(
    step: float, method: Subnetworks
) -> None:
    recursion, trials = method.recursion(), 6000
    x = simulate_subnetworks(method, np.zeros((trials, DIMS)), step, int(6 / step), seed=2)
    covariance = recursion.at(step).covariance()
    errors = np.sqrt(np.diag(covariance) / trials)
    assert (np.abs(x.mean(0) - method.fixed_point()) < 5 * errors).all()
    assert np.cov(x.T) == pytest.approx(covariance, abs=6 * float(np.diag(covariance).max()) / trials**0.5)
    assert np.linalg.norm(method.fixed_point() - MIXED.minimum) > 5 * errors.max()  # the bias is no noise


def test_2_trials_of_the_papers_scaling_gather_at_a_third_of_that() -> None:
    method, step, trials = METHODS[1], 0.1, 6000
    assert method.fixed_point() == pytest.approx(METHODS[0].fixed_point() / WORKERS)
    x = simulate_subnetworks(method, np.zeros((trials, DIMS)), step, 60, seed=3)
    errors = np.sqrt(np.diag(method.recursion().at(step).covariance()) / trials)
    assert (np.abs(x.mean(0) - method.fixed_point()) < 5 * errors).all()


def test_2_the_bias_does_not_depend_on_the_step_and_the_variance_is_proportional_to_it() -> None:
    recursion = METHODS[0].recursion()
    small, smaller = (np.trace(recursion.at(step).covariance()) for step in (0.02, 0.01))
    assert small / smaller == pytest.approx(2.0, rel=0.02)


def test_2_the_mean_converges_at_the_rate_of_its_matrix() -> None:
    method, step = METHODS[0], 0.2
    recursion, x = method.recursion(), np.ones(DIMS) * 9
    gaps = []
    for _ in range(90):
        x = x - step * (method.mean_matrix() @ x - MIXED.mean_slope)
        gaps.append(np.linalg.norm(x - method.fixed_point()))
    assert gaps[-1] / gaps[-2] == pytest.approx(recursion.at(step).rate(), rel=2e-3)


def test_2_the_largest_stable_step_is_below_that_of_the_mean() -> None:
    for method in METHODS[:4]:
        recursion = method.recursion()
        most = recursion.largest_step()
        assert 0 < most < 2.0 / np.linalg.eigvalsh(method.mean_matrix()).max()
        assert recursion.at(0.99 * most).square_rate() < 1.0 < recursion.at(1.01 * most).square_rate()
    with pytest.raises(BadInput, match="is not stable"):
        METHODS[0].recursion().at(1.05 * METHODS[0].recursion().largest_step()).covariance()


def test_2_where_no_step_is_stable_the_largest_is_none() -> None:
    saddle = np.diag([1.0, -1.0])
    recursion = Recursion(
        mean=saddle, mean_slope=np.ones(2), conjugate=lambda s: saddle @ s @ saddle, noise=lambda x: np.eye(2)
    )
    assert recursion.largest_step() == 0.0


def test_3_uncoupled_coordinates_have_no_bias_and_weakly_coupled_ones_little() -> None:
    diagonal, other = np.diag(np.arange(1.0, 7.0)), np.ones((6, 6)) - np.eye(6)
    norms = [
        np.linalg.norm(Subnetworks(quadratic=homogeneous(diagonal + c * other, np.ones(6), 3), held=2).bias())
        for c in (0.0, 0.01, 0.1)
    ]
    assert norms[0] == pytest.approx(0.0, abs=1e-12)
    assert norms[0] < norms[1] < 0.2 * norms[2]


def test_3_without_a_slope_there_is_no_bias() -> None:
    still = Quadratic(curvature=MIXED.curvature, slope=np.zeros_like(MIXED.slope))
    assert np.abs(Subnetworks(quadratic=still, held=2).bias()).max() == 0.0


def test_3_interpolation_does_not_help_subnetworks_but_makes_compressed_gradients_exact() -> None:
    meeting = random_quadratic(DIMS, WORKERS, 3, kind="meeting")
    assert meeting.gradients(meeting.minimum[None])[0] == pytest.approx(0.0, abs=1e-10)
    assert np.linalg.norm(Subnetworks(quadratic=meeting, held=2).bias()) > 0.1
    for kind in ("rand", "perm"):
        recursion = CompressedDescent(quadratic=meeting, kept=2, kind=kind).recursion()  # type: ignore[arg-type]
        assert recursion.fixed_point() == pytest.approx(meeting.minimum)
        half = recursion.at(0.5 * recursion.largest_step())
        assert np.abs(half.covariance()).max() == pytest.approx(0.0, abs=1e-10)


def test_4_the_fixed_point_minimises_the_loss_of_the_subnetworks() -> None:
    method = METHODS[0]
    masks = method.windows.every()

    def loss(x: np.ndarray) -> float:
        held = masks * x
        bent = np.einsum("kij,ijl,kil->", held, MIXED.curvature, held)
        return float((0.5 * bent - (held * MIXED.slope).sum()) / len(masks))

    least = loss(method.fixed_point())
    for direction in np.eye(DIMS):
        for size in (-1e-3, 1e-3):
            assert loss(method.fixed_point() + size * direction) > least


def test_5_theorem_1_bounds_every_step() -> None:
    # Its W is definite where the coupling is weak.
    weak = random_quadratic(DIMS, WORKERS, 4, spread=0.3)
    still = Quadratic(curvature=weak.curvature, slope=np.zeros_like(weak.slope))
    theorem = WithoutSlope(subnetworks=Subnetworks(quadratic=still, held=2, scaled=True))
    assert theorem.definite()
    step = 1.0 / theorem.theta()
    recursion, bent = theorem.subnetworks.recursion(), still.mean_curvature
    start = np.random.default_rng(5).normal(size=DIMS)
    moment = np.outer(start, start)
    first = float((bent * moment).sum())
    assert 0 < theorem.rate(step) < 1
    sloped = 0.0
    for k in range(1, 30):
        sloped += float((theorem.weight * moment).sum())  # |grad f|^2 in the norm of L^-1 W L^-1 is x'W x
        moment = recursion.at(step).moved(moment)  # E[x x'], exactly
        left = float((bent * moment).sum())  # 2 E f
        assert left <= theorem.rate(step) ** k * first + 1e-12 * first
        assert sloped / k <= (first - left) / (step * k)


def test_5_theorem_1_is_exact_about_what_it_takes_from_the_sketches() -> None:
    method = METHODS[1]  # the paper's scaling: B = mean C_i L_i C_i with C_i = n P_i
    bent = MIXED.mean_curvature
    sketch = WORKERS * method.windows.every()
    matrices = np.einsum("kij,ijl,kil->kjl", sketch, MIXED.curvature, sketch) / WORKERS
    weight = 0.5 * (bent @ matrices + matrices @ bent).mean(0)
    assert WithoutSlope(subnetworks=method).weight == pytest.approx(weight)
    assert sketch.mean(1) == pytest.approx(np.ones((len(sketch), DIMS)))  # the C_i add up to n I
    moved = np.einsum("kij,jl,klm->im", matrices, bent, matrices) / len(matrices)
    assert method.recursion().conjugate(bent) == pytest.approx(moved)


def test_5_theorem_1_knows_gradient_descent_and_when_it_is_silent() -> None:
    everything = WithoutSlope(subnetworks=Subnetworks(quadratic=MIXED, held=DIMS))
    assert everything.theta() == pytest.approx(np.linalg.eigvalsh(MIXED.mean_curvature).max())
    # Two coordinates, one each: [[a, c], [c, b]] with a = 1, b = 2 is indefinite beyond c = 2ab/(a+b) = 4/3.
    for coupling, definite in ((1.3, True), (1.35, False)):
        pair = homogeneous(np.array([[1.0, coupling], [coupling, 2.0]]), np.zeros(2), 2)
        assert (
            WithoutSlope(subnetworks=Subnetworks(quadratic=pair, held=1, scaled=True)).definite() is definite
        )
    with pytest.raises(BadInput, match="is indefinite"):
        WithoutSlope(subnetworks=Subnetworks(quadratic=pair, held=1, scaled=True)).theta()


def test_5_a_unit_diagonal_gives_one_coordinate_each_theta_n() -> None:
    bent = MIXED.mean_curvature
    unit = bent / np.sqrt(np.outer(np.diag(bent), np.diag(bent)))
    theorem = WithoutSlope(
        subnetworks=Subnetworks(quadratic=homogeneous(unit, np.zeros(DIMS), DIMS), held=1, scaled=True)
    )
    assert theorem.theta() == pytest.approx(DIMS)
    assert theorem.weight == pytest.approx(DIMS * unit)
    assert theorem.rate(0.5 / DIMS) == pytest.approx(0.5)  # 1 - c n, however badly L is conditioned


def test_5_theorem_2_its_identity_limit_and_bound() -> None:
    q, step, trials = random_quadratic(4, 4, 6), 0.3, 40_000
    theorem = OneCoordinate(quadratic=q)
    masks = Windows(dims=4, workers=4, held=1).every()
    diagonal = np.einsum("ijj->ij", q.curvature)
    sketch = masks * np.sqrt(4 / diagonal)  # C_i, diagonals
    identity = np.einsum("kij,ijl,kil->kjl", sketch, q.curvature, sketch) / 4
    assert identity == pytest.approx(np.broadcast_to(np.eye(4), identity.shape))  # for every permutation
    slopes = (sketch * q.slope).mean(1)
    assert slopes.mean(0) == pytest.approx(theorem.fixed_point())
    spread = slopes - slopes.mean(0)
    assert theorem.variance() == pytest.approx(float((spread @ q.mean_curvature * spread).sum(1).mean()))
    source, x = np.random.default_rng(7), np.zeros((trials, 4))
    for _ in range(40):
        x = x - step * (x - slopes[source.integers(len(slopes), size=trials)])
    gap = x - q.minimum
    found = (gap @ q.mean_curvature * gap).sum(1)
    assert found.mean() == pytest.approx(theorem.limit(step), abs=5 * found.std() / trials**0.5)
    # After two steps, over all pairs of permutations: E x = (1 - c)^2 x0 + (1 - (1 - c)^2) x.
    start = np.full(4, 3.0)
    pairs = (1 - step) * ((1 - step) * start + step * slopes[:, None]) + step * slopes[None]
    kept = (1 - step) ** 2
    assert pairs.mean((0, 1)) == pytest.approx(kept * start + (1 - kept) * theorem.fixed_point())
    gap = (pairs - q.minimum).reshape(-1, 4)
    squares = float((gap @ q.mean_curvature * gap).sum(1).mean())
    assert theorem.expected(start, step, 2)[2] == pytest.approx(squares)
    for rounds in (1, 5, 50, 1000):
        values = theorem.expected(start, step, rounds)
        short = (values[0] - values[-1]) / (step * rounds) + theorem.distance() + step * theorem.variance()
        assert values[:-1].mean() <= short <= theorem.bound(start, step, rounds)


def test_5_many_workers_do_not_make_the_bias_vanish() -> None:
    for n in (4, 16, 64):
        theorem = OneCoordinate(quadratic=homogeneous(np.eye(n), np.ones(n), n))
        assert theorem.fixed_point() == pytest.approx(1 / n**0.5)
        assert theorem.quadratic.minimum == pytest.approx(1.0)


def test_6_more_coverage_means_less_bias_and_all_of_it_none() -> None:
    q = random_quadratic(8, 4, 8)
    norms = [np.linalg.norm(Subnetworks(quadratic=q, held=held).bias()) for held in range(2, 9)]
    assert norms == sorted(norms, reverse=True)
    assert norms[-1] == pytest.approx(0.0, abs=1e-10)
    assert Windows(dims=8, workers=4, held=4).mixing == 3 / 7


def test_7_many_local_steps_forget_the_start() -> None:
    masks = Windows(dims=DIMS, workers=WORKERS, held=2).draw(50, np.random.default_rng(9))
    gaps = []
    for local_steps in (1, 10, 100, 1000):
        here, there = (
            merged(MIXED, masks, np.full((50, DIMS), value), 0.1, local_steps) for value in (-5.0, 5.0)
        )
        gaps.append(float(np.abs(here - there).max()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-10 < gaps[0]


def test_8_the_inference_scale_of_equal_correlations_has_a_closed_form() -> None:
    d, n = 12, 3
    for r in (0.0, 0.2, 0.9):
        bent = (1 - r) * np.eye(d) + r * np.ones((d, d))
        method = Subnetworks(quadratic=homogeneous(bent, np.ones(d), n), held=d // n)
        assert best_scale(method) == pytest.approx(equicorrelated_scale(d, d // n, r))
    assert equicorrelated_scale(d, d // n, 0.0) == 1.0
    assert equicorrelated_scale(1200, 400, 0.999) == pytest.approx(1 / 3, rel=0.01)
    # It is the least along the line: f(c x) is lower there than on either side.
    for c in (0.9, 1.1):
        scale = best_scale(method)
        x = method.fixed_point()
        assert method.quadratic.value(scale * x) < method.quadratic.value(c * scale * x)


def test_9_a_few_steps_of_the_whole_model_remove_the_bias() -> None:
    x, step = METHODS[0].fixed_point(), 1.0 / np.linalg.eigvalsh(MIXED.mean_curvature).max()
    start = np.linalg.norm(x - MIXED.minimum)
    for _ in range(60):
        x = x - step * (MIXED.mean_curvature @ x - MIXED.mean_slope)
    assert np.linalg.norm(x - MIXED.minimum) < 1e-3 * start


@pytest.mark.parametrize("kind", ["rand", "perm"])
def test_10_compressed_descent_has_the_moments_of_its_sketches(kind: Any) -> None:
    method = CompressedDescent(quadratic=MIXED, kept=2, kind=kind)
    matrices, slopes = method.sampled(method.sketch.every())  # 15^3 triples of pairs, or 720 orders
    recursion, moment = method.recursion(), np.cov(np.random.default_rng(1).normal(size=(DIMS, 20)))
    exact = np.einsum("kij,jl,kml->im", matrices, moment, matrices) / len(matrices)
    assert matrices.mean(0) == pytest.approx(recursion.mean, abs=1e-12)
    assert recursion.conjugate(moment) == pytest.approx(exact, abs=1e-10)
    for x in (MIXED.minimum, np.ones(DIMS)):
        left = slopes - matrices @ x
        assert recursion.noise(x) == pytest.approx(left.T @ left / len(left), abs=1e-10)


@pytest.mark.parametrize("kind", ["rand", "perm"])
def test_10_masks_are_drawn_as_often_as_they_are_counted(kind: Any) -> None:
    sketch, trials = Kept(dims=DIMS, workers=WORKERS, kept=2, kind=kind), 40_000
    masks = sketch.every().reshape(-1, WORKERS * DIMS)
    assert masks.mean(0) == pytest.approx(sketch.share)
    assert np.cov(masks.T, bias=True) == pytest.approx(sketch.covariance(), abs=1e-12)
    drawn = sketch.draw(trials, np.random.default_rng(0)).reshape(trials, -1)
    assert np.cov(drawn.T) == pytest.approx(sketch.covariance(), abs=5 * 0.25 / trials**0.5)


def test_10_what_no_sketch_can_keep_is_refused() -> None:
    with pytest.raises(BadInput, match="are not 1 to 6"):
        CompressedDescent(quadratic=MIXED, kept=7)
    with pytest.raises(BadInput, match="are not 1/3 of them"):
        CompressedDescent(quadratic=MIXED, kept=3, kind="perm")
    alone = CompressedDescent(quadratic=random_quadratic(1, 1, 0), kept=1, kind="perm")
    assert alone.recursion().at(0.1).covariance() == pytest.approx(0.0)  # one worker is gradient descent


def test_10_compressed_descent_stays_at_a_floor_that_shrinks_with_the_step() -> None:
    recursion = CompressedDescent(quadratic=MIXED, kept=2).recursion()
    step, trials = 0.05, 4000
    start = np.zeros((trials, DIMS))
    x = simulate_compressed(MIXED, "dcgd-rand", 2, start, step, 250, seed=1)
    covariance = recursion.at(step).covariance()
    assert np.cov(x.T) == pytest.approx(covariance, abs=8 * float(np.diag(covariance).max()) / trials**0.5)
    half = np.trace(recursion.at(step / 2).covariance())
    assert np.trace(covariance) / half == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("kind", ["same", "meeting", "any"])
def test_10_who_reaches_the_minimum_at_equal_floats(kind: str) -> None:
    q = random_quadratic(DIMS, WORKERS, 11, kind=kind)
    step, start = 0.05, np.zeros((20, DIMS))
    gaps = {
        name: np.linalg.norm(
            simulate_compressed(q, name, 2, start, step, 800, seed=3) - q.minimum, axis=1
        ).max()
        for name in ("dcgd-rand", "dcgd-perm", "diana", "ef21", "ef21-rand", "marina", "marina-rand")
    }
    apart = Subnetworks(quadratic=q, held=2)
    stalled = simulate_subnetworks(apart, np.zeros((1000, DIMS)), step, 200, seed=3)
    assert all(gap < 1e-6 for name, gap in gaps.items() if not name.startswith("dcgd"))
    exact = kind in ("same", "meeting")
    assert (gaps["dcgd-perm"] < 1e-6) == exact
    assert (gaps["dcgd-rand"] < 1e-6) == exact
    assert np.linalg.norm(stalled.mean(0) - q.minimum) == pytest.approx(np.linalg.norm(apart.bias()), rel=0.2)
    assert np.linalg.norm(apart.bias()) > 0.1


def test_10_what_is_proved_of_steps_and_rates_holds() -> None:
    q, k = random_quadratic(DIMS, WORKERS, 12), 300
    start = np.zeros((400, DIMS))
    omega = DIMS / 2 - 1
    first = float(q.minimum @ q.minimum)

    def squares(name: str, step: float) -> float:
        x = simulate_compressed(q, name, 2, start, step, k, seed=4)
        return float(((x - q.minimum) ** 2).sum(1).mean())

    plain = compressed_descent(q, omega)
    assert squares("dcgd-rand", plain.step) <= plain.rate**k * first + plain.floor
    spread = float((q.gradients(q.minimum[None])[0] ** 2).sum(1).mean())
    for name, claim in (
        ("diana", diana(q, omega)),
        ("ef21", ef21(q, 2 / DIMS)),
        ("marina", marina(q, 1.0, 2 / DIMS)),
    ):
        assert claim.floor == 0.0
        assert 0 < claim.rate < 1
        # Their measures bound |x - x*|^2 up to constants that the start fixes: gradients, and mu.
        most = claim.rate**k * 4 * (first + spread) * np.linalg.cond(q.mean_curvature) * (1 + omega) ** 2
        assert squares(name, claim.step) <= most
