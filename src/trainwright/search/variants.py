"""The families of plans that a search found, each with all of its variants.

A search keeps a strategy on the first rung of the ladder of recomputation and offloading that fits; the rungs
above need less memory, and may be within 1 % as fast. They are evaluated here, for the families asked for.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.distinct import distinct
from trainwright.estimate.types import Job
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, OFFLOADS, RECOMPUTES, Strategies, join_strategies
from trainwright.search.families import (
    FAMILY_KNOBS,
    WITHIN,
    PlanFamily,
    best_scores,
    distinct_rows,
    family_codes,
    group_families,
)
from trainwright.search.find import Found, Question, evaluate, find_plans, space_of
from trainwright.search.ladder import bottom, on_rung, rung_knobs, rungs, without_gpipe
from trainwright.search.rank import Candidates, join_candidates
from trainwright.search.space import KNOBS, Space, layer_count, legal_strategies

Ints = NDArray[np.int64]
_NONE, _FULL = RECOMPUTES.index("none"), RECOMPUTES.index("full")
_MOVING = {"none": "activations", "optimizer": "both"}
_KEPT = (*FAMILY_KNOBS, "precision")
_RUNG = ("recompute", "recompute_layers", "offload", "offload_layers")
# Recomputed or offloaded beyond the fewest that fit, in the units that the stack counts.
_MORE_LAYERS = (1, 2, 3)


def find_winner(question: Question) -> tuple[Found, Candidates]:
    """What a search finds, and the first plan of its ranking: empty if nothing fits.

    That is the representative of the first family, or the best strategy if no families are asked for.
    """
    question = replace(question, top=1, families=min(question.families, 1))
    found = find_plans(question)
    return found, first_plan(question, found)


def first_plan(question: Question, found: Found) -> Candidates:
    """The first plan of the ranking of what was found: empty if nothing fits."""
    families = find_families(question, found) if question.families else ()
    return families[0].representative if families else found.best.take(slice(0, 1))


def find_families(question: Question, found: Found) -> tuple[PlanFamily, ...]:
    """The best families of what was found, as many as the question asks for, by their representatives."""
    near = _near(question, found)
    if not len(near):
        return ()
    batches = np.unique(near.global_batch).tolist()
    added = [each for batch in batches for each in _added(question, near.take(near.global_batch == batch))]
    every = join_candidates([near, *added])
    return group_families(every, question.job.cluster.capacity_bytes, found.limit)[: question.families]


def _near(question: Question, found: Found) -> Candidates:
    """What was found of the best families, within 1 % of the best of each.

    A family may come first by its representative, which is up to 1 % slower than the best, so those that are
    up to 1 % behind the last one asked for belong to them.
    """
    if not len(found.best):
        return found.best
    known = join_candidates([found.best, found.leaders])
    codes = family_codes(known)
    scores = best_scores(known, codes)
    last = np.sort(scores[np.isfinite(scores)])[: question.families][-1]
    is_asked = scores[codes] <= (1.0 + WITHIN) * last
    near = _once(known.take(is_asked & (known.score <= (1.0 + WITHIN) * scores[codes])))
    beyond = (1.0 + WITHIN) * near.score > found.bound  # of these families, not all were kept
    if question.objective == "memory" or not beyond.any():
        return near
    return _once(join_candidates([near, *_whole(question, near.take(beyond))]))


def _once(candidates: Candidates) -> Candidates:
    """The candidates without repetitions."""
    return candidates.take(distinct_rows([candidates.global_batch, *_columns(candidates.strategies)])[0])


def _columns(strategies: Strategies) -> list[Ints]:
    return [getattr(strategies, knob) for knob in KNOBS]


def _whole(question: Question, near: Candidates) -> Iterator[Candidates]:
    """All that fit of the families of some candidates, on the lowest rung and on the candidates' own ones, in
    the orders that these have.
    """
    for batch in np.unique(near.global_batch).tolist():
        own = near.strategies.take(near.global_batch == batch)
        firsts = distinct(own, (*_KEPT, *_RUNG, "order"))[0].tolist()
        yield _fitting(question, batch, join_strategies(_of_family(question, batch, own, n) for n in firsts))


def _of_family(question: Question, batch: int, strategies: Strategies, index: int) -> Strategies:
    """The strategies of the family of one of some, in its order, on the lowest rung and on its own."""

    def space(knobs: tuple[str, ...]) -> Space:
        own = {knob: (int(getattr(strategies, knob)[index]),) for knob in knobs}
        return without_gpipe(space_of(replace(question, fixed={**question.fixed, **own}), batch))

    spaces, lowest = [space((*_KEPT, *_RUNG))], bottom(space(_KEPT))
    if lowest:
        spaces.append(on_rung(space(_KEPT), lowest))
    every = join_strategies(map(legal_strategies, spaces))
    return replace(every, order=np.full(len(every), strategies.order[index], dtype=np.int64))


def _added(question: Question, near: Candidates) -> Iterator[Candidates]:
    """Those of one batch on the other rungs, and with more layers recomputed or offloaded, that fit."""
    if question.objective == "memory":
        return  # every strategy of the space was evaluated
    batch, strategies = int(near.global_batch[0]), near.strategies
    ladder = rungs(without_gpipe(space_of(question, batch)))
    parts = [_with(strategies, **rung_knobs(each)) for each in ladder]
    if any(each.counted for each in ladder):
        parts += _with_layers(question.job, strategies)
    if any(each.counts_offloaded for each in ladder):
        parts += _with_offloaded(question.job, strategies)
    tried = join_strategies([strategies, *parts])
    first = distinct_rows(_columns(tried))[0]
    new = tried.take(first[first >= len(near)])
    if len(new):
        yield _fitting(question, batch, new)


def _with(strategies: Strategies, **values: int | Ints) -> Strategies:
    columns = {knob: np.broadcast_to(np.asarray(v), len(strategies)) for knob, v in values.items()}
    return replace(strategies, **columns)


def _with_layers(job: Job, strategies: Strategies) -> Iterator[Strategies]:
    """Those that recompute nothing, or some layers of a stage, with some layers more."""
    counts_in = job.stack.capability.recompute_layers
    if counts_in == "every":
        return
    is_open = (strategies.recompute == _NONE) | (strategies.recompute_layers > 0)
    chosen = strategies.take(is_open)
    unit = chosen.vpp if counts_in == "chunk" else np.ones_like(chosen.vpp)
    for more in _MORE_LAYERS:
        layers = chosen.recompute_layers + more * unit
        is_part = layers < -(-layer_count(job.graph) // chosen.pp)
        yield _with(chosen, recompute=_FULL, recompute_layers=layers).take(is_part)


def _with_offloaded(job: Job, strategies: Strategies) -> Iterator[Strategies]:
    """Those that offload the activations of no layer, or of some, with some layers more."""
    keeps = np.array([name not in ACTIVATION_OFFLOADS for name in OFFLOADS])[strategies.offload]
    chosen = strategies.take((strategies.pp == 1) & (keeps | (strategies.offload_layers > 0)))
    moving = np.array([OFFLOADS.index(_MOVING.get(name, name)) for name in OFFLOADS])[chosen.offload]
    for more in _MORE_LAYERS:
        layers = chosen.offload_layers + more
        yield _with(chosen, offload=moving, offload_layers=layers).take(layers < layer_count(job.graph) - 1)


def _fitting(question: Question, batch: int, strategies: Strategies) -> Candidates:
    candidates, fit = evaluate(question, replace(question.job, global_batch=batch), strategies)
    return candidates.take(fit)
