"""Layers of each stage, given as text or cut such that the slowest stage is as fast as can be."""

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput, InfeasiblePlan

Floats = NDArray[np.float64]


def parse_counts(text: str) -> tuple[int, ...]:
    """Numbers of layers, stage by stage, as in `7:9:9:7`; none if the text is empty."""
    words = text.split(":") if text else []
    if not all(word.isdecimal() and len(word) < 7 for word in words):
        raise BadInput("counts", text, "is not a number of layers for each stage", "write 7:9:9:7")
    return tuple(map(int, words))


def best_counts(
    time_s: Sequence[float],
    stages: int,
    *,
    state_bytes: Sequence[float] = (),
    kept_bytes: Sequence[float] = (),
    held: Sequence[int] = (),
    limit_bytes: float = inf,
) -> tuple[int, ...]:
    """Layers of each stage, one at least, for which the slowest stage is fastest and every one fits.

    A layer takes `time_s` and needs `state_bytes`, and `kept_bytes` for each microbatch that its stage holds.
    Exact, in O(stages · layers²): the best cut of the first j layers into s stages extends one of the first i
    into s−1.
    """
    layers = len(time_s)
    if not 1 <= stages <= layers:
        raise BadInput("stages", stages, f"{layers} layers cannot fill them", "use one to as many as layers")
    times, states, kept = (_sums(each, layers) for each in (time_s, state_bytes, kept_bytes))
    best = np.full(layers + 1, inf)
    best[0] = 0.0
    choices = []
    for stage in range(stages):
        fits = states + (held[stage] if held else 1) * kept <= limit_bytes
        worst = np.where(fits, np.maximum(best[:, None], times), inf)
        choices.append(worst.argmin(axis=0))
        best = worst.min(axis=0)
    if not np.isfinite(best[-1]):
        raise InfeasiblePlan(
            f"no cut of {layers} layers into {stages} stages fits into {limit_bytes / 2**30:.1f} GiB each; "
            "use more stages, recompute activations or split layers"
        )
    return _backtracked(choices, layers)


def _sums(values: Sequence[float], layers: int) -> Floats:
    """The sum of layers i to j−1, infinite where there are none."""
    given = np.asarray(values, float) if len(values) else np.zeros(layers)
    ends = np.append(0.0, np.cumsum(given))
    found: Floats = ends[None, :] - ends[:, None]
    found[np.tril_indices(layers + 1)] = inf
    return found


def _backtracked(choices: Sequence[NDArray[np.intp]], layers: int) -> tuple[int, ...]:
    counts: list[int] = []
    end = layers
    for choice in reversed(choices):
        start = int(choice[end])
        counts.append(end - start)
        end = start
    return tuple(reversed(counts))
