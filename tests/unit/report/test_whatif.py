"""What-if answers: a better resource never hurts, and helps where it is used."""

import numpy as np

from tests.builders import gpt, round_cluster, round_job
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.report.whatif import what_if

JOB = round_job(gpt(), round_cluster(16), 64)
STRATEGIES = stack_strategies([Strategy(dp=16, zero=1), Strategy(dp=2, tp=8, sp=True, zero=1)])
BATCH = np.array([64, 64])


def test_no_improvement_makes_training_slower() -> None:
    assert all(each.faster >= 0 for each in what_if(JOB, STRATEGIES, BATCH))


def test_none_brings_more_than_a_quarter() -> None:
    assert all(each.faster <= 0.25 + 1e-9 for each in what_if(JOB, STRATEGIES, BATCH))


def test_one_device_gains_nothing_from_the_network() -> None:
    alone = round_job(gpt(), round_cluster(1), 8)
    answers = what_if(alone, stack_strategies([Strategy()]), np.array([8]))
    gains = {each.resource: each.faster for each in answers}
    assert gains["compute"] > 0.1
    assert gains["bandwidth between nodes"] == 0
    assert gains["bandwidth inside a node"] == 0


def test_the_best_plan_may_change() -> None:
    slow_first = stack_strategies([Strategy(dp=2, tp=8, sp=True, zero=1), Strategy(dp=16, zero=1)])
    fastest = {each.strategy for each in what_if(JOB, slow_first, BATCH)}
    assert fastest <= {slow_first[0], slow_first[1]}
