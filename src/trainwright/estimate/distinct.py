"""The distinct combinations of some knobs in a batch of strategies: few, however large the batch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainwright.plan.strategy import Strategies

Ints = NDArray[np.int64]

_MOST_CODES = 1 << 20
_FEW_CODES = 1 << 12


def distinct(strategies: Strategies, knobs: Sequence[str]) -> tuple[Ints, Ints]:
    """One strategy of each distinct combination of `knobs`, and for each strategy the index of its own.

    Knobs are small integers, so combinations are told apart by tables instead of sorting.
    """
    code, count = np.zeros(len(strategies), dtype=np.int64), 1
    most = min(max(8 * len(strategies), _FEW_CODES), _MOST_CODES)  # a table costs no more than the strategies
    for knob in knobs:
        column = getattr(strategies, knob)
        if column.strides == (0,):
            continue  # broadcast: one value
        rank, present = _ranks(column, int(column.max()) + 1)
        if present > 1:
            code = code * present + rank
            count *= present
            if count > most:
                code, count = _ranks(code, count)
    code, count = _ranks(code, count)
    first = np.empty(count, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return first, code


def _ranks(column: Ints, limit: int) -> tuple[Ints, int]:
    """The rank of each value among those present, and their number; values are below `limit`."""
    used = np.zeros(limit, dtype=bool)
    used[column] = True
    ranks = np.cumsum(used, dtype=np.int64) - 1
    return ranks[column], int(ranks[-1]) + 1
