"""Families of plans: those that share parallel degrees and sharding, each shown by one representative.

Step times of plans that differ in other knobs only are often closer than predictions are exact. Variants of a
family whose score is within 1 % of the family's best count as equally good, and `representative_key` chooses
among them. See docs/ranking.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import inf

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.distinct import distinct
from trainwright.estimate.types import Array
from trainwright.plan.strategy import OFFLOADS, SCHEDULES, Strategies
from trainwright.search.rank import Candidates, best, rounded

Ints = NDArray[np.int64]
FAMILY_KNOBS = ("dp", "tp", "cp", "pp", "ep", "etp", "zero", "shard")  # what the rows of a ranking differ in
WITHIN = 0.01  # of the best score of a family: variants that close are equivalent
USUAL_VPP = 4  # more virtual stages count as an unusual knob
_CLASS = 0.05  # of the capacity: plans whose memory is in one class are equally full
_AMPLE = 0.75  # of the capacity: plans that fill less are equally safe, at an OOM risk of about 1 % or below
# Several precisions are compared only if a user asks, so plans of two are never variants of one.
_KEPT = (*FAMILY_KNOBS, "precision")
_FEW = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFamily:
    """The equivalent variants of one set of degrees and sharding at one batch, the representative first."""

    variants: Candidates

    @property
    def representative(self) -> Candidates:
        """The variant that stands for the family, as a batch of one."""
        return self.variants.take(slice(0, 1))

    @property
    def strategies(self) -> tuple[str, ...]:
        """The variants as text, the representative first."""
        listed = self.variants.strategies
        return tuple(str(listed[index]) for index in range(len(listed)))


def unusual_knobs(strategies: Strategies) -> Ints:
    """How many knobs of each strategy few people set: see docs/ranking.md."""
    unusual = (
        strategies.order != 0,
        strategies.offload != OFFLOADS.index("none"),
        strategies.recompute_layers > 0,
        strategies.vpp > USUAL_VPP,
        strategies.schedule == SCHEDULES.index("zb"),
    )
    return np.asarray(sum(each.astype(np.int64) for each in unusual), dtype=np.int64)


def representative_key(candidates: Candidates, capacity_bytes: float) -> tuple[Array | Ints, ...]:
    """The columns by which a representative is chosen, the most significant first; less is better.

    The memory class, the count of unusual knobs, the score, then each knob, so that no two are equal.
    """
    # A share that is a whole number of classes but for rounding stays in the lower one.
    share = np.maximum(candidates.total_bytes / capacity_bytes, _AMPLE)
    classes = np.ceil(share / _CLASS - 1e-9)
    knobs = (getattr(candidates.strategies, field.name) for field in fields(Strategies))
    return classes, unusual_knobs(candidates.strategies), rounded(candidates.score), *knobs


def group_families(
    candidates: Candidates, capacity_bytes: float, limit: float = inf
) -> tuple[PlanFamily, ...]:
    """Every family of some candidates, by the score of its representative; ties are broken by its knobs.

    Candidates that are not within 1 % of the best of their family are in none. A family with variants up to
    the limit, the score of a published recipe, is represented by one of these.
    """
    if not len(candidates):
        return ()
    families = list(_families(candidates, capacity_bytes, limit))
    order = np.lexsort([np.asarray(each) for each in _ranking_key(families)][::-1])
    return tuple(families[index] for index in order.tolist())


def _families(candidates: Candidates, capacity_bytes: float, limit: float) -> Iterator[PlanFamily]:
    codes = family_codes(candidates)
    near = np.flatnonzero(candidates.score <= (1.0 + WITHIN) * best_scores(candidates, codes)[codes])
    candidates, codes = candidates.take(near), codes[near]
    is_worse = rounded(candidates.score) > rounded(np.array([limit]))
    order = np.lexsort([*representative_key(candidates, capacity_bytes)[::-1], is_worse, codes])
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        yield PlanFamily(variants=candidates.take(rows))


def _ranking_key(families: list[PlanFamily]) -> Iterator[list[float]]:
    firsts = [each.representative for each in families]
    yield rounded(np.array([float(each.score[0]) for each in firsts])).tolist()
    yield [float(each.global_batch[0]) for each in firsts]
    for field in fields(Strategies):
        yield [float(getattr(each.strategies, field.name)[0]) for each in firsts]


def family_codes(candidates: Candidates) -> Ints:
    """For each candidate the number of its family: small, and the same for all of a family."""
    if len(candidates) < _FEW:
        knobs = (getattr(candidates.strategies, knob) for knob in _KEPT)
        return distinct_rows([candidates.global_batch, *knobs])[1]
    _, codes = distinct(candidates.strategies, _KEPT)
    batches, which = np.unique(candidates.global_batch, return_inverse=True)
    return codes if len(batches) == 1 else np.asarray(codes * len(batches) + which, dtype=np.int64)


def distinct_rows(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The first row of each distinct combination of some columns, and for each row the number of its own.

    It sorts, which is faster than the tables of `distinct` where there are few rows.
    """
    order = np.lexsort(columns)
    rows = np.stack(columns)[:, order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(is_new) - 1
    return order[is_new], codes


def best_scores(candidates: Candidates, codes: Ints) -> Array:
    """The best score of each family, by its number; infinite where a number has none."""
    found = np.full(int(codes.max()) + 1, np.inf)
    np.minimum.at(found, codes, candidates.score)
    return found


def family_leaders(candidates: Candidates) -> Candidates:
    """The best of each family, best first."""
    if not len(candidates):
        return candidates
    codes = family_codes(candidates)
    near = np.flatnonzero(candidates.score <= best_scores(candidates, codes)[codes] * (1.0 + 1e-9))
    tied = best(candidates.take(near), len(near))
    _, where = np.unique(family_codes(tied), return_index=True)
    return tied.take(np.sort(where))
