"""What holds for the estimate of every strategy, whatever the constants are."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.laws.draws import Question, questions, with_links
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Estimates, Job
from trainwright.plan.strategy import Strategies, join_strategies, parse_strategy
from trainwright.search.space import layer_count

FACTORS = st.sampled_from([1.01, 1.25, 2.0, 10.0])


def never_slower(faster: Job, question: Question) -> None:
    before = estimate(question.job, question.strategies).step_s
    after = estimate(faster, question.strategies).step_s
    worse = np.flatnonzero(after > before * (1 + 1e-9))
    assert not len(worse), f"{question.strategies[int(worse[0])]}: {before[worse[0]]} -> {after[worse[0]]} s"


def columns(result: Estimates) -> dict[str, NDArray[np.float64]]:
    """Every array of an estimate, by name."""
    arrays = {
        name: getattr(result, name) for name in ("step_s", "total_bytes", "host_bytes", "hardware_flops")
    }
    for group in ("time_s", "communication_s", "memory_bytes"):
        arrays |= {f"{group}.{name}": each for name, each in getattr(result, group).items()}
    return arrays


@given(questions())
def test_no_part_of_a_step_or_of_memory_is_negative(question: Question) -> None:
    result = estimate(question.job, question.strategies)
    for name, each in columns(result).items():
        assert np.isfinite(each).all(), name
        assert (each >= 0).all(), name


@given(questions())
def test_exposed_communication_is_part_of_all_communication(question: Question) -> None:
    job = replace(question.job, stack=replace(question.job.stack, interference=0.0))
    result = estimate(job, question.strategies)
    for name in ("tp", "cp", "ep", "dp"):  # pp also waits
        assert (result.time_s[name] <= result.communication_s[name] * (1 + 1e-9)).all(), name


@given(questions(), FACTORS)
def test_a_faster_link_inside_a_node_never_slows_a_step(question: Question, factor: float) -> None:
    never_slower(with_links(question.job, inner=factor), question)


@given(questions(), FACTORS)
def test_a_faster_link_between_nodes_never_slows_a_step(question: Question, factor: float) -> None:
    never_slower(with_links(question.job, outer=factor), question)


@given(questions(), FACTORS)
def test_a_lower_latency_never_slows_a_step(question: Question, factor: float) -> None:
    never_slower(with_links(question.job, latency=1 / factor), question)


@given(questions())
def test_twice_the_batch_never_takes_less_time(question: Question) -> None:
    once = estimate(question.job, question.strategies).step_s
    twice = estimate(
        replace(question.job, global_batch=2 * int(question.job.global_batch)), question.strategies
    ).step_s
    assert (twice >= once).all()


@given(questions())
def test_overlap_never_slows_a_step_without_interference(question: Question) -> None:
    job = replace(question.job, stack=replace(question.job.stack, interference=0.0))
    on, off = (_with(question.strategies, "overlap", value) for value in (1, 0))
    assert (estimate(job, on).step_s <= estimate(job, off).step_s * (1 + 1e-9)).all()


@given(questions(), st.integers(0, 1))
def test_sharding_more_of_the_state_never_raises_the_memory_of_the_fullest_device(
    question: Question, zero: int
) -> None:
    low, high = (estimate(question.job, _with(question.strategies, "zero", z)) for z in (zero, zero + 1))
    assert (high.total_bytes <= low.total_bytes * (1 + 1e-9)).all()


@given(questions())
def test_recomputation_trades_time_for_memory(question: Question) -> None:
    none, full = (estimate(question.job, _with(question.strategies, "recompute", r)) for r in (0, 2))
    assert (full.step_s >= none.step_s * (1 - 1e-9)).all()
    # The layer being recomputed is whole for a moment, so a stage of one layer may gain nothing.
    deep = question.strategies.pp * 4 <= layer_count(question.job.graph)
    assert (full.total_bytes <= none.total_bytes * (1 + 1e-9))[deep].all()


@given(questions())
def test_a_batch_is_evaluated_as_its_members_are(question: Question) -> None:
    together = columns(estimate(question.job, question.strategies))
    for index in range(len(question.strategies)):
        alone = columns(estimate(question.job, question.strategies.take(slice(index, index + 1))))
        for name, each in alone.items():
            assert each[0] == pytest.approx(together[name][index], rel=1e-12, abs=1e-12), name


@given(questions(), st.randoms(use_true_random=False))
def test_a_permuted_batch_has_permuted_results(question: Question, random: object) -> None:
    order = list(range(len(question.strategies)))
    random.shuffle(order)  # type: ignore[attr-defined]
    plain = columns(estimate(question.job, question.strategies))
    mixed = columns(estimate(question.job, question.strategies.take(np.array(order))))
    for name, each in mixed.items():
        assert each == pytest.approx(plain[name][order], rel=1e-12, abs=1e-12), name


@given(questions())
def test_evaluating_twice_gives_the_same_bytes(question: Question) -> None:
    first, second = (columns(estimate(question.job, question.strategies)) for _ in range(2))
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@given(questions())
def test_a_batch_per_strategy_is_the_same_as_one_for_all(question: Question) -> None:
    each = np.full(len(question.strategies), question.job.global_batch, dtype=np.int64)
    one = columns(estimate(question.job, question.strategies))
    many = columns(estimate(replace(question.job, global_batch=each), question.strategies))
    assert all(np.array_equal(one[name], many[name]) for name in one)


@given(questions())
def test_a_legal_strategy_is_read_as_it_is_written(question: Question) -> None:
    for index in range(len(question.strategies)):
        strategy = question.strategies[index]
        assert parse_strategy(str(strategy)) == strategy


@given(questions())
def test_joining_what_was_taken_apart_changes_nothing(question: Question) -> None:
    parts = [question.strategies.take(slice(i, i + 1)) for i in range(len(question.strategies))]
    joined = join_strategies(parts)
    assert all(
        np.array_equal(getattr(joined, f.name), getattr(question.strategies, f.name))
        for f in fields(Strategies)
    )


def _with(strategies: Strategies, knob: str, value: int) -> Strategies:
    return replace(strategies, **{knob: np.full(len(strategies), value, dtype=np.int64)})
