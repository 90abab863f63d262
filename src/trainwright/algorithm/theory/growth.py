"""The spectral radius of linear maps that keep positive symmetric matrices positive, without their matrix."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_EXACT = 1e-12  # what is left of an eigenvector, relative to its eigenvalue


def growth(moved: Callable[[Array], Array], dims: int) -> float:
    """What matrices are multiplied by in a round of S -> moved(S), in the long run: by Arnoldi, from I.

    The radius of such a map is itself an eigenvalue (Krein and Rutman), and the identity has a part along its
    eigenvectors. So it is the largest of the real parts of the map on the span of I, moved(I), and so on, as
    soon as that is an eigenvalue of the whole.
    """
    most = dims * (dims + 1) // 2
    basis = np.empty((most + 1, dims * dims))
    bent = np.zeros((most + 1, most))
    basis[0] = np.eye(dims).ravel() / np.sqrt(dims)
    for size in range(1, most + 1):
        image = moved(basis[size - 1].reshape(dims, dims)).ravel()
        length = float(np.linalg.norm(image))
        for _ in range(2):  # the second time for what rounding left
            along = basis[:size] @ image
            image = image - along @ basis[:size]
            bent[:size, size - 1] += along
        left = float(np.linalg.norm(image))
        whole = size == most or left <= _EXACT * length
        if whole or size.bit_count() == 1:
            value, weight = _largest(bent[:size, :size])
            if whole or left * weight <= _EXACT * abs(value):
                return value
        bent[size, size - 1], basis[size] = left, image / left
    raise AssertionError("the span of all symmetric matrices has no eigenvalue")


def _largest(matrix: Array) -> tuple[float, float]:
    """The largest real part of an eigenvalue, and the size of the last entry of its unit eigenvector."""
    values, vectors = np.linalg.eig(matrix)
    place = int(values.real.argmax())
    return float(values[place].real), float(abs(vectors[-1, place]))
