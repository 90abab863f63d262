"""Interruptions: numbers that can be checked by hand, limits, and a published run."""

import random
from dataclasses import replace
from math import exp, inf, sqrt

import pytest

from trainwright.economics.goodput import (
    FAILURES_PER_DEVICE_DAY,
    PLANNED_PER_DAY,
    Reliability,
    Run,
    best_interval_s,
    goodput,
    slowest_of,
)

RUN = Run(devices=800, nodes=100, step_s=1.0, state_bytes=1e12)
QUIET = Reliability(planned_per_day=0.0, step_jitter=0.0)


def test_the_published_counts_are_the_default() -> None:
    # 419 unexpected interruptions in 54 days on 16,384 devices
    assert pytest.approx(4.736e-4, rel=1e-3) == FAILURES_PER_DEVICE_DAY
    assert pytest.approx(0.870, rel=1e-3) == PLANNED_PER_DAY


def test_llama_3_405b_on_16384_h100_moves_forward_over_90_percent_of_the_time() -> None:
    # 405.9 B parameters at 14 bytes are 5.68 TB, written at 2 TB/s in 2.8 s; a failure every 3.1 h.
    run = Run(devices=16384, nodes=2048, step_s=6.0, state_bytes=405.9e9 * 14)
    result = goodput(run, Reliability())
    assert result.failures_per_day == pytest.approx(419 / 54)
    assert result.checkpoint_s == pytest.approx(2.84, rel=0.01)
    assert 0.90 < result.share < 0.97
    assert 0.90 < result.speed < 0.97


def test_shares_add_up_to_one() -> None:
    result = goodput(RUN, Reliability(failures_per_device_day=0.01))
    lost = result.checkpoint_share + result.redone_share + result.restart_share + result.planned_share
    assert result.share + lost == pytest.approx(1.0)
    assert min(result.checkpoint_share, result.redone_share, result.restart_share) > 0


def test_writing_is_bound_by_nodes_or_by_storage() -> None:
    # 1 TB: 100 nodes at 1 GB/s take 10 s; storage of 50 GB/s takes 20 s
    assert goodput(RUN, QUIET).checkpoint_s == pytest.approx(10.0)
    assert goodput(RUN, replace(QUIET, storage_bytes_per_s=50e9)).checkpoint_s == pytest.approx(20.0)
    assert goodput(RUN, replace(QUIET, checkpoint_bytes=2e12)).checkpoint_s == pytest.approx(20.0)


def test_rare_failures_cost_what_the_first_order_says() -> None:
    # A failure in 100,000 s, written in 20 s: Young has sqrt(2 · 20 · 1e5) = 2,000 s. Lost: 20 / 2000 for
    # writing, half of 2,000 s and 600 s of restart in 1e5 s; together 2.6 %.
    rate = 86400.0 / 1e5 / 800
    result = goodput(RUN, replace(QUIET, failures_per_device_day=rate, storage_bytes_per_s=50e9))
    assert result.interval_s == pytest.approx(2000.0, rel=0.01)
    assert 1.0 - result.share == pytest.approx(0.026, rel=0.03)


@pytest.mark.parametrize(("write_s", "mean_s"), [(1.0, 1e5), (30.0, 1e4), (300.0, 3600.0), (600.0, 900.0)])
def test_no_other_interval_is_much_better(write_s: float, mean_s: float) -> None:
    def wasted(interval_s: float) -> float:
        return mean_s * (exp((interval_s + write_s) / mean_s) - 1.0) / interval_s

    best = best_interval_s(write_s, mean_s)
    assert wasted(best) <= 1.005 * min(wasted(best * factor / 50) for factor in range(5, 200))
    assert best <= sqrt(2.0 * write_s * mean_s)  # Young's, before what writing takes is taken off


def test_a_random_history_agrees() -> None:
    # failures at random, every hour on average; work of 500 s, 50 s of writing, 300 s of restart
    chance, elapsed, done = random.Random(7), 0.0, 0
    while done < 5000:
        until = chance.expovariate(1 / 3600.0)
        if until >= 550.0:
            elapsed, done = elapsed + 550.0, done + 1
            continue
        elapsed += until
        while (until := chance.expovariate(1 / 3600.0)) < 300.0:
            elapsed += until
        elapsed += 300.0
    told = goodput(
        replace(RUN, state_bytes=5e12),
        replace(
            QUIET, failures_per_device_day=24 / 800, detection_s=100.0, restart_s=200.0, interval_s=500.0
        ),
    )
    assert told.share == pytest.approx(500.0 * done / elapsed, abs=0.01)


def test_nothing_fails_and_nothing_is_lost() -> None:
    result = goodput(RUN, replace(QUIET, failures_per_device_day=0.0))
    assert (result.share, result.interval_s, result.speed) == (1.0, inf, 1.0)


def test_a_cluster_that_fails_before_it_restarts_never_finishes() -> None:
    result = goodput(RUN, replace(QUIET, failures_per_device_day=1e6))
    assert result.share == 0.0


def test_an_interval_is_at_least_a_step() -> None:
    assert goodput(replace(RUN, step_s=1e6), QUIET).interval_s == 1e6
    assert goodput(RUN, replace(QUIET, interval_s=123.0)).interval_s == 123.0


def test_planned_interruptions_take_their_time() -> None:
    # twice a day for 1,728 s: 4 %
    still = replace(QUIET, failures_per_device_day=0.0, planned_per_day=2.0, planned_s=1728.0)
    assert goodput(RUN, still).share == pytest.approx(0.96)


@pytest.mark.parametrize(
    ("nodes", "behind"), [(1, 0.0), (2, 0.5642), (10, 1.5388), (100, 2.5076), (1000, 3.2414)]
)
def test_the_slowest_of_many_is_as_tables_have_it(nodes: int, behind: float) -> None:
    assert slowest_of(nodes) == pytest.approx(behind, rel=0.05 if nodes == 2 else 0.01, abs=1e-12)


def test_stragglers_slow_every_step() -> None:
    # 100 nodes: 2.5 standard deviations of 1 %
    slow = goodput(RUN, replace(QUIET, failures_per_device_day=0.0, step_jitter=0.01))
    assert slow.straggling == pytest.approx(0.025, rel=0.01)
    assert slow.speed == pytest.approx(1.0 / 1.025, rel=0.001)


def test_more_devices_are_interrupted_more() -> None:
    shares = [goodput(replace(RUN, devices=8 * n, nodes=n), QUIET).share for n in (1, 10, 100, 1000, 10000)]
    assert shares == sorted(shares, reverse=True)
