"""The factor that a merged model is best multiplied by at inference."""

from trainwright.algorithm.theory.subnetworks import Subnetworks


def best_scale(method: Subnetworks) -> float:
    """The c that minimises f(c x), x being where subnetworks converge to: x'b / x'L x."""
    x, q = method.fixed_point(), method.quadratic
    return float(x @ q.mean_slope / (x @ q.mean_curvature @ x))


def equicorrelated_scale(dims: int, held: int, correlation: float) -> float:
    """The same for L = (1 - r) I + r 11' and b = 1: (1 - a r + a r d)/(1 - r + r d).

    1 for uncorrelated coordinates; towards held/d for strongly correlated ones.
    """
    a = (held - 1) / (dims - 1)
    return (1 - a * correlation + a * correlation * dims) / (1 - correlation + correlation * dims)
