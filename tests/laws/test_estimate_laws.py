"""What holds for the estimate of every strategy, whatever the constants are."""

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.laws.draws import Question, questions, with_compute, with_host, with_links, with_memory
from trainwright.estimate.layers import model_parts
from trainwright.estimate.layouts import State, build_layouts
from trainwright.estimate.least import least_step_s
from trainwright.estimate.network import links
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.step import build_tables, distinct_recomputes, estimate
from trainwright.estimate.types import Estimates, Job
from trainwright.plan.recompute_modules import NAMES, RECOMPUTES, SELECTIVE
from trainwright.plan.strategy import OFFLOADS, SCHEDULES, Strategies, join_strategies, parse_strategy
from trainwright.search.space import layer_count

FACTORS = st.sampled_from([1.01, 1.25, 2.0, 10.0])


def never_slower(faster: Job, question: Question, within: float = 1e-9) -> None:
    before = estimate(question.job, question.strategies).step_s
    after = estimate(faster, question.strategies).step_s
    worse = np.flatnonzero(after > before * (1 + within))
    assert not len(worse), f"{question.strategies[int(worse[0])]}: {before[worse[0]]} -> {after[worse[0]]} s"


def columns(result: Estimates) -> dict[str, NDArray[np.float64]]:
    """Every array of an estimate, by name."""
    arrays = {name: getattr(result, name) for name in ("step_s", "busy_s", "total_bytes", "host_bytes")}
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
def test_no_step_is_shorter_than_its_lower_bound(question: Question) -> None:
    least_s = least_step_s(question.job, question.strategies)
    assert (least_s <= estimate(question.job, question.strategies).step_s * (1 + 1e-9)).all()


@given(questions())
def test_tables_of_strategies_estimate_what_else_these_recompute_and_offload(question: Question) -> None:
    variants = question.strategies
    plain = replace(variants, recompute=0 * variants.recompute, offload=0 * variants.offload)
    tables = build_tables(question.job, plain, distinct_recomputes(variants))
    rows = np.arange(len(plain))[::-1]
    found = columns(tables.take(rows).estimate(variants.take(rows), detail=True))
    for name, each in columns(estimate(question.job, variants)).items():
        assert found[name] == pytest.approx(each[::-1], rel=1e-12), name


@given(questions())
def test_the_parts_of_a_step_add_up_to_it(question: Question) -> None:
    result = estimate(question.job, question.strategies)
    assert sum(result.time_s.values()) == pytest.approx(result.step_s, rel=1e-9)


@given(questions())
def test_the_parts_of_memory_add_up_to_it(question: Question) -> None:
    result = estimate(question.job, question.strategies)
    assert sum(result.memory_bytes.values()) == pytest.approx(result.total_bytes, rel=1e-9)


@given(questions())
def test_a_step_takes_at_least_as_long_as_the_mean_device_computes(question: Question) -> None:
    result = estimate(question.job, question.strategies)
    assert (result.busy_s <= result.step_s * (1 + 1e-9)).all()


@given(questions())
def test_detail_changes_no_number(question: Question) -> None:
    plain = estimate(question.job, question.strategies, detail=False)
    whole = columns(estimate(question.job, question.strategies))
    assert not plain.time_s
    assert not plain.communication_s
    assert all(np.array_equal(each, whole[name]) for name, each in columns(plain).items())


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


@given(questions(), FACTORS)
def test_more_compute_never_slows_a_step(question: Question, factor: float) -> None:
    never_slower(with_compute(question.job, factor), question)


@given(questions(), FACTORS)
def test_more_memory_bandwidth_never_slows_a_step(question: Question, factor: float) -> None:
    # Not yet a law: of 288 sets of up to 20,000 strategies, 156 strategies were slower, up to 1.1e-2. Where
    # ZeRO-3's scatter takes longer than the weight gradients that ZB-H1 puts off, faster memory saves nothing
    # there, but leaves less to hide an end's gathers; GPipe with activations on the host is off by 4.6e-3.
    never_slower(with_memory(question.job, factor), question, within=1e-3)


@given(questions(), FACTORS)
def test_a_faster_link_to_the_host_never_slows_a_step(question: Question, factor: float) -> None:
    never_slower(with_host(question.job, factor), question)


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


def _without_unit_buffers(job: Job) -> Job:
    """The job without unsharded gradients of a unit: on a stage of few layers they exceed what ZeRO saves."""
    state = replace(job.stack.capability.state, unit_gradient_bytes=0.0)
    capability = replace(job.stack.capability, state=state)
    return replace(job, stack=replace(job.stack, capability=capability))


@given(questions(), st.integers(0, 2))
def test_sharding_more_never_raises_the_state_of_any_stage(question: Question, zero: int) -> None:
    job = _without_unit_buffers(question.job)
    low, high = (_states(job, _with(question.strategies, "zero", z)) for z in (zero, zero + 1))
    for less, more in zip(high, low, strict=True):
        for name in ("weights", "gradients", "optimizer"):
            assert (getattr(less, name) <= getattr(more, name) * (1 + 1e-9)).all(), name


@given(questions(), st.integers(0, 2))
def test_sharding_more_never_raises_the_memory_of_the_fullest_device(question: Question, zero: int) -> None:
    job = _without_unit_buffers(question.job)
    low, high = (estimate(job, _with(question.strategies, "zero", z)) for z in (zero, zero + 1))
    assert (high.total_bytes <= low.total_bytes * (1 + 1e-9)).all()


@given(questions())
def test_offloading_trades_time_for_memory(question: Question) -> None:
    none, optimizer, activations, both = (
        estimate(question.job, _with(question.strategies, "offload", value)) for value in range(4)
    )
    for less, more in ((none, optimizer), (none, activations), (optimizer, both), (activations, both)):
        assert (more.step_s >= less.step_s * (1 - 1e-9)).all()
    assert (both.host_bytes >= np.maximum(optimizer.host_bytes, activations.host_bytes)).all()
    assert (optimizer.total_bytes <= none.total_bytes * (1 + 1e-9)).all()


@given(questions())
def test_the_more_layers_offload_the_longer_a_step_and_the_less_it_keeps(question: Question) -> None:
    moves = _with(question.strategies, "offload", OFFLOADS.index("activations"))
    counts = [estimate(question.job, _with(moves, "offload_layers", count)) for count in (1, 2, 5, 0)]
    for less, more in pairwise(counts):
        assert (more.step_s >= less.step_s * (1 - 1e-9)).all()
        assert (more.total_bytes <= less.total_bytes * (1 + 1e-9)).all()
        assert (more.host_bytes >= less.host_bytes * (1 - 1e-9)).all()


@given(questions())
def test_recomputation_never_makes_a_step_faster_while_activations_stay(question: Question) -> None:
    stays = _with(question.strategies, "offload", 0)
    sets = ("none", "norm", SELECTIVE, "full")
    none, norm, selective, full = (
        estimate(question.job, _with(stays, "recompute", RECOMPUTES.index(each))).step_s for each in sets
    )
    assert (norm >= none * (1 - 1e-9)).all()
    assert (selective >= norm * (1 - 1e-9)).all()
    assert (full >= selective * (1 - 1e-9)).all()


@given(questions(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_more_modules_take_no_less_time(question: Question, some: set[str], more: set[str]) -> None:
    stays = _with(_with(question.strategies, "offload", 0), "recompute_layers", 0)
    less_s, more_s = (
        estimate(question.job, _with(stays, "recompute", RECOMPUTES.index("+".join(each) or "none"))).step_s
        for each in (some, some | more)
    )
    assert (more_s >= less_s * (1 - 1e-9)).all()


@given(questions())
def test_the_more_layers_recompute_the_longer_a_step_and_the_less_it_keeps(question: Question) -> None:
    stays = _with(_with(question.strategies, "offload", 0), "recompute", RECOMPUTES.index("full"))
    counts = [estimate(question.job, _with(stays, "recompute_layers", count)) for count in (1, 2, 5, 0)]
    for less, more in pairwise(counts):
        assert (more.step_s >= less.step_s * (1 - 1e-9)).all()
        assert (more.total_bytes <= less.total_bytes * (1 + 1e-9)).all()


@given(questions())
def test_gpipe_takes_no_less_time_or_memory_than_1f1b(question: Question) -> None:
    plain = _with(_with(question.strategies, "vpp", 1), "schedule", SCHEDULES.index("1f1b"))
    plain = plain.take(plain.pp > 1)
    one, all_ = (
        estimate(question.job, each) for each in (plain, _with(plain, "schedule", SCHEDULES.index("gpipe")))
    )
    assert (all_.step_s >= one.step_s * (1 - 1e-9)).all()
    assert (all_.total_bytes >= one.total_bytes * (1 - 1e-12)).all()
    assert (all_.host_bytes >= one.host_bytes * (1 - 1e-12)).all()


@given(questions())
def test_zero_bubble_is_never_slower_than_1f1b(question: Question) -> None:
    plain = _with(_with(question.strategies, "vpp", 1), "schedule", SCHEDULES.index("1f1b"))
    plain = plain.take(plain.pp > 1)
    # Apart, gradients of inputs and of weights hide less: copies to the host, gathers, scatters.
    plain = _with(_with(plain, "offload", 0), "zero", 0)
    zero = _with(plain, "schedule", SCHEDULES.index("zb"))
    assert (estimate(question.job, zero).step_s <= estimate(question.job, plain).step_s * (1 + 1e-12)).all()


@given(questions())
def test_recomputation_trades_time_for_memory(question: Question) -> None:
    stays = _with(question.strategies, "offload", 0)
    none, full = (estimate(question.job, _with(stays, "recompute", r)) for r in (0, RECOMPUTES.index("full")))
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


def _states(job: Job, strategies: Strategies) -> list[State]:
    """The state of the first, second and last stage of each strategy."""
    where = links(job)
    shapes, shape = distinct_shapes(strategies)
    layers, *parts = model_parts(job, where, shapes, ("none",))
    layer, first, last = parts
    states = []
    for at in range(len(strategies)):
        one = slice(at, at + 1)
        layouts = build_layouts(job, where, layers, (layer, first, last), strategies.take(one), shape[one])
        states += layouts.states
    return states
