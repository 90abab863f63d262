"""Times of things that run beside each other."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def smooth_max(a: Array, b: Array) -> Array:
    """The larger of two times that run beside each other, a little more where they are close."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
    return high * (1.0 + ratio**8) ** 0.125


def shown_s(compute_s: Array, communication_s: Array, share: Array, interference: float) -> Array:
    """What communication adds to compute when `share` of it runs beside it.

    Compute loses `interference` seconds per second of communication beside it, so w and c together take
    w + i·c, or c alone once that is longer.
    """
    beside = communication_s * share
    return communication_s - beside + np.maximum(interference * beside, beside - compute_s)
