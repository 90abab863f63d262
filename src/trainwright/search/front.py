"""The Pareto front of candidates: time per token against memory."""

import numpy as np

from trainwright.search.rank import Candidates, best


def pareto_front(candidates: Candidates) -> Candidates:
    """The candidates that no other beats in both time per token and memory, fastest first.

    After sorting by time, a candidate is on the front if it needs less memory than all before it. Of equal
    ones the first in the stable order stays.
    """
    if not len(candidates):
        return candidates
    per_sequence = candidates.step_s / candidates.global_batch
    order = np.lexsort((candidates.total_bytes, per_sequence))
    memory = candidates.total_bytes[order]
    least = np.minimum.accumulate(memory)
    equal_or_less = candidates.take(order[memory <= least])
    return _first_of_equals(best(equal_or_less, len(equal_or_less)))


def _first_of_equals(ordered: Candidates) -> Candidates:
    per_sequence = ordered.step_s / ordered.global_batch
    order = np.argsort(per_sequence, kind="stable")
    sorted_ = ordered.take(order)
    before = np.concatenate([[np.inf], np.minimum.accumulate(sorted_.total_bytes)[:-1]])
    return sorted_.take(sorted_.total_bytes < before)
