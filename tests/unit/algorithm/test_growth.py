"""The spectral radius of maps on symmetric matrices."""

import numpy as np
import pytest

from trainwright.algorithm.theory.growth import growth


def test_a_matrix_on_both_sides_grows_by_the_square_of_its_own_radius() -> None:
    # Eigenvalues 2 and 0.6 +- 0.8i, of size 1: the radius of S -> A S A' is 2^2.
    turned = np.array([[2.0, 5.0, 0.0], [0.0, 0.6, -0.8], [0.0, 0.8, 0.6]])
    assert growth(lambda s: turned @ s @ turned.T, 3) == pytest.approx(4.0)
    assert growth(lambda s: turned[1:, 1:] @ s @ turned[1:, 1:].T, 2) == pytest.approx(1.0)


def test_what_ends_after_two_rounds_does_not_grow() -> None:
    once = np.array([[0.0, 1.0], [0.0, 0.0]])
    assert growth(lambda s: once @ s @ once.T, 2) == pytest.approx(0.0, abs=1e-12)
    assert growth(lambda s: 0.0 * s, 3) == 0.0


def test_random_matrices_grow_as_the_whole_matrix_of_the_map_says() -> None:
    source = np.random.default_rng(0)
    for dims in (1, 3, 8):
        drawn = source.normal(size=(5, dims, dims))
        whole = sum(np.kron(each, each) for each in drawn)
        radius = np.abs(np.linalg.eigvals(whole)).max()
        assert growth(lambda s, drawn=drawn: (drawn @ s @ drawn.transpose(0, 2, 1)).sum(0), dims) == (
            pytest.approx(radius, rel=1e-10)
        )
