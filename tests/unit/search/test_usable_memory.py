"""What fits is decided by usable bytes: the nominal size changes nothing.

A device of twice the memory, of which half is usable, gives the same answers as a device that has all of it.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.builders import gpt, round_cluster, round_device, round_job
from tests.unit.search.test_flexible import question as flexible_question
from tests.unit.search.test_flexible import setting as flexible_setting
from tests.unit.search.test_islands import question as island_question
from tests.unit.search.test_tables import job as tables_job
from trainwright.cluster.types import Cluster, MemoryTier
from trainwright.cost.change import RESOURCES, Place
from trainwright.errors import InfeasiblePlan
from trainwright.estimate.fleet import estimate_all, sort_strategies
from trainwright.estimate.step import estimate
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy
from trainwright.search.find import Question, find_plans, space_of
from trainwright.search.flexible import find_flexible
from trainwright.search.islands import find_apart
from trainwright.search.space import legal_strategies
from trainwright.search.tables import lay_tables
from trainwright.simulate.whole import simulate_plan
from trainwright.sweep.paths import resolve, with_value

NEAR = MemoryTier(name="hbm", capacity_bytes=0.5e9, bytes_per_s=1e12)
FAR = MemoryTier(name="cxl", capacity_bytes=1e9, bytes_per_s=1e11, access="direct")


def reserved(cluster: Cluster) -> Cluster:
    """The cluster with twice the nominal memory, of which half is usable."""
    own, *others = cluster.device.memory
    half = replace(own, capacity_bytes=2.0 * own.capacity_bytes, usable_fraction=0.5)
    return replace(cluster, device=replace(cluster.device, memory=(half, *others)))


def asked(*others: MemoryTier) -> Question:
    job = round_job(gpt(), round_cluster(8, device=round_device(memory=(NEAR, *others))), 32)
    return Question(job=job, batches=(32,), fixed={}, most={})


def on_reserved(question: Question) -> Question:
    return replace(question, job=replace(question.job, cluster=reserved(question.job.cluster)))


@pytest.mark.parametrize("others", [(), (FAR,)])
def test_the_closed_form_and_the_search_see_usable_bytes(others: tuple[MemoryTier, ...]) -> None:
    question = asked(*others)
    half = on_reserved(question)
    assert half.job.cluster.capacity_bytes == question.job.cluster.capacity_bytes
    strategies = legal_strategies(space_of(question, 32))
    both = [estimate(each.job, strategies) for each in (question, half)]
    assert 0 < both[0].feasible.sum() < len(strategies)
    assert np.array_equal(both[0].feasible, both[1].feasible)
    assert np.array_equal(both[0].tiers_s, both[1].tiers_s)
    fleets = [estimate_all(each.job, 1, sort_strategies(strategies)) for each in (question, half)]
    assert np.array_equal(fleets[0].feasible, fleets[1].feasible)
    found = [find_plans(each) for each in (question, half)]
    assert list(map(str, found[0].best.strategies)) == list(map(str, found[1].best.strategies))


def test_the_simulation_sees_usable_bytes() -> None:
    of = flexible_setting()
    plan = expand(parse_strategy("dp4"), of.graph, 16)
    need = max(each.total_bytes for each in simulate_plan(of, plan).needs)
    own = replace(of.cluster.device.memory[0], capacity_bytes=1.01 * need, usable_fraction=0.98)
    tight = replace(of, cluster=replace(of.cluster, device=replace(of.cluster.device, memory=(own,))))
    with pytest.raises(InfeasiblePlan, match="on device 0, which has"):
        simulate_plan(tight, plan).check()
    assert not simulate_plan(tight, plan).fits


def test_flexible_plans_and_islands_see_usable_bytes() -> None:
    of = flexible_setting(vocab=65536, memory=0.9e9)
    found = [
        find_flexible(flexible_question(each), each)
        for each in (of, replace(of, cluster=reserved(of.cluster)))
    ]
    assert found[0].knobs or found[0].plans
    assert found[0] == found[1]
    question = island_question("h100:8x2@10Gbps")
    options = [find_apart(each, "diloco") for each in (question, on_reserved_memory(question))]
    assert options[0].strategy == options[1].strategy


def on_reserved_memory(question: Question) -> Question:
    """As `on_reserved`, of a device that states usable memory already."""
    own, *others = question.job.cluster.device.memory
    half = replace(own, capacity_bytes=2.0 * own.usable_bytes, usable_fraction=0.5)
    device = replace(question.job.cluster.device, memory=(half, *others))
    return replace(question, job=replace(question.job, cluster=replace(question.job.cluster, device=device)))


def test_more_memory_is_more_usable_memory() -> None:
    cluster = reserved(asked().job.cluster)
    place = Place(cluster=cluster, efficiency=round_job(gpt(), cluster, 32).efficiency)
    changed = RESOURCES["memory"](place, 1.25).cluster
    assert changed.capacity_bytes == pytest.approx(1.25 * cluster.capacity_bytes)
    assert changed.device.memory[0].capacity_bytes == pytest.approx(1.25e9)
    path = resolve(cluster, "device.memory.0.capacity")
    swept = with_value(cluster, path, np.array([1e9, 2e9]))
    assert list(swept.capacity_bytes) == [0.5e9, 1e9]  # the share that is usable stays


def test_tables_of_recommenders_see_usable_bytes() -> None:
    of = tables_job("dlrm-mlperf", "a100:8")
    small = replace(of.cluster.device.memory[0], capacity_bytes=16e9, usable_fraction=None)
    device = replace(of.cluster.device, memory=(small, *of.cluster.device.memory[1:]))
    full = replace(of, cluster=replace(of.cluster, device=device))
    half = replace(full, cluster=reserved(full.cluster))
    laid = [lay_tables(each, 8, 512, "fp32").estimates.feasible for each in (full, half)]
    assert np.array_equal(laid[0], laid[1])
    assert laid[0].any()
    assert not laid[0].all()
