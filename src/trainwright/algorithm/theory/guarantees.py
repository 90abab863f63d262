"""What is proved of compressed methods on strongly convex functions: step sizes and rates."""

from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from trainwright.algorithm.theory.quadratic import Quadratic


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """At `step`, the measure of the method falls by `rate` a step down to `floor`, at least."""

    step: float
    rate: float
    floor: float = 0.0


def _constants(quadratic: Quadratic) -> tuple[float, float, float, float]:
    """mu and L of f, the largest L of an f_i, and the root of their mean square."""
    eigenvalues = np.linalg.eigvalsh(quadratic.mean_curvature)
    each = np.linalg.eigvalsh(quadratic.curvature).max(1)
    return float(eigenvalues[0]), float(eigenvalues[-1]), float(each.max()), float(sqrt((each**2).mean()))


def compressed_descent(quadratic: Quadratic, omega: float) -> Guarantee:
    """E|x - x*|^2 of compressed gradient descent: linear to a floor that is 0 under interpolation.

    Gorbunov, Hanzely & Richtárik 2020.
    """
    mu, smooth, largest, _ = _constants(quadratic)
    step = 1.0 / (smooth + 2.0 * omega * largest / quadratic.workers)
    left = quadratic.slope - quadratic.curvature @ quadratic.minimum
    noise = 2.0 * omega / quadratic.workers * float((left**2).sum(1).mean())
    return Guarantee(step=step, rate=1.0 - step * mu, floor=step * noise / mu)


def diana(quadratic: Quadratic, omega: float) -> Guarantee:
    """The Lyapunov function of DIANA with shifts that move by 1/(1 + omega): linear to 0."""
    mu, _, largest, _ = _constants(quadratic)
    step = 1.0 / ((1.0 + 6.0 * omega / quadratic.workers) * largest)
    return Guarantee(step=step, rate=max(1.0 - step * mu, 1.0 - 0.5 / (1.0 + omega)))


def ef21(quadratic: Quadratic, alpha: float) -> Guarantee:
    """f - f* + (c/theta) mean|g_i - grad_i|^2 of EF21 with a contraction of 1 - alpha: linear to 0."""
    mu, smooth, _, mean = _constants(quadratic)
    theta = 1.0 - sqrt(1.0 - alpha)
    beta = (1.0 - alpha) / theta if theta else inf
    step = min(1.0 / (smooth + mean * sqrt(2.0 * beta / theta)), theta / (2.0 * mu))
    return Guarantee(step=step, rate=1.0 - step * mu)


def marina(quadratic: Quadratic, omega_over_workers: float, whole: float) -> Guarantee:
    """E f - f* of MARINA, whole gradients with probability `whole`: linear to 0.

    `omega_over_workers` is omega/n for compressors of independent workers, and at most 1 for Perm-K.
    """
    mu, smooth, _, mean = _constants(quadratic)
    step = min(
        1.0 / (smooth + mean * sqrt(2.0 * (1.0 - whole) * omega_over_workers / whole)), whole / (2.0 * mu)
    )
    return Guarantee(step=step, rate=1.0 - step * mu)
