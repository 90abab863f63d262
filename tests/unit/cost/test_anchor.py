"""Levels corrected by measured runs: shrinkage, matching, narrowing."""

from dataclasses import replace
from math import exp, log, sqrt

import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.anchor import (
    KNOWN,
    MEMORY,
    UNKNOWN,
    WEAKER,
    Anchor,
    AnchorRun,
    LevelCorrection,
    RunConditions,
    VarianceParts,
    anchor_job,
    conditions_of,
    correct_level,
    narrow_memory,
    shared_variance,
)
from trainwright.cost.change import Place
from trainwright.cost.load import Interval, load_constants
from trainwright.cost.memory_risk import MemorySpread
from trainwright.cost.slowed import slow_place, slow_stack
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy, stack_strategies

JOB = RunConditions(
    stack="megatron-core", device="h100", family="hopper", precision="16-bit", layers=32,
    parameters=8_000_000_000,
)  # fmt: skip
PARTS = VarianceParts(level=0.01, model=0.02, run=0.06)
OTHER_MODEL = replace(JOB, layers=80, parameters=70_000_000_000)


def corrected(*runs: tuple[RunConditions, float], parts: VarianceParts = PARTS) -> LevelCorrection:
    found = correct_level(JOB, runs, parts)
    assert found is not None
    return found


def test_one_run_is_shrunk_by_the_scatter_of_single_runs() -> None:
    # t = 0.01 + 0.02 = 0.03, s = 0.06: weight 0.03 / 0.09 = 1/3 of 0.12. What is left of 0.12 is 0.08, less
    # than one deviation of scatter (0.245), so that the run counts fully.
    found = corrected((JOB, 0.12))
    assert found.factor == pytest.approx(exp(0.04))
    # left: t s / (t + s) + s = 0.02 + 0.06 = 0.08, of 0.09
    assert found.width == pytest.approx(sqrt(0.08 / 0.09))
    assert (found.runs, found.same_model) == (1, 1)


def test_runs_of_the_same_conditions_count_by_their_number() -> None:
    # n t / (n t + s) = 0.12 / 0.18 = 2/3 of the mean 0.03; left: 0.03 * 0.06 / 0.18 + 0.06 = 0.07
    found = corrected((JOB, 0.02), (JOB, 0.04), (JOB, 0.03), (JOB, 0.03))
    assert found.factor == pytest.approx(exp(0.02))
    assert found.width == pytest.approx(sqrt(0.07 / 0.09))


def test_another_model_shares_only_the_level() -> None:
    # covariance 0.01, variance of the run 0.09: weight 1/9
    found = corrected((OTHER_MODEL, 0.09))
    assert found.factor == pytest.approx(exp(0.01))
    assert (found.runs, found.same_model) == (1, 0)


@pytest.mark.parametrize("changed", [{"device": "h200"}, {"precision": "fp8"}])
def test_another_device_of_the_family_or_precision_is_weaker_evidence(changed: dict[str, str]) -> None:
    # covariance 0.03 / 3 = 0.01, of 0.09: weight 1/9
    found = corrected((replace(JOB, **changed), 0.09))
    assert found.factor == pytest.approx(exp(0.01))
    assert found.width == pytest.approx(sqrt((0.09 - 0.01**2 / 0.09) / 0.09))


def test_each_condition_that_differs_weakens_the_evidence_again() -> None:
    other = replace(JOB, device="h200", precision="fp8")
    assert shared_variance(JOB, other, PARTS) == pytest.approx(0.03 * WEAKER**2)


@pytest.mark.parametrize("changed", [{"stack": "torchtitan"}, {"family": "ampere"}])
def test_another_stack_or_family_says_nothing(changed: dict[str, str]) -> None:
    assert correct_level(JOB, [(replace(JOB, **changed), 0.5)], PARTS) is None


def test_a_job_without_a_release_takes_runs_of_every_release() -> None:
    found = corrected((replace(JOB, release="0.9"), 0.12))
    assert found.factor == pytest.approx(exp(0.04))


def test_another_release_is_weaker_evidence_for_a_job_that_states_one() -> None:
    # as another device: weight 1/9
    found = correct_level(replace(JOB, release="0.10"), [(replace(JOB, release="0.9"), 0.09)], PARTS)
    assert found is not None
    assert found.factor == pytest.approx(exp(0.01))


def test_a_release_of_the_stack_is_the_release_of_the_job() -> None:
    graph, cluster = build_graph(load_model("gpt2")), load_cluster("h100:8")
    found = conditions_of(graph, cluster.device, "torchtitan@v0.2.2", "bf16")
    assert (found.stack, found.release, found.precision) == ("torchtitan", "0.2.2", "16-bit")


def test_one_run_far_from_the_prediction_moves_less_than_its_share() -> None:
    assert corrected((JOB, log(5.0))).factor < exp(log(5.0) / 3)


def test_runs_far_from_the_prediction_that_confirm_each_other_are_believed() -> None:
    # 2 t / (2 t + s) = 1/2 of log 2 by the variances alone
    found = corrected((JOB, log(2.0)), (JOB, log(2.0)))
    assert exp(log(2.0) / 2) < found.factor < 2.0


def test_a_run_that_others_contradict_counts_less() -> None:
    near = [(JOB, 0.0), (JOB, 0.01)]
    mean = exp((0.0 + 0.01 + 1.5) * 0.03 / (3 * 0.03 + 0.06))
    assert corrected(*near, (JOB, 1.5)).factor < mean


def test_more_runs_never_widen_the_range() -> None:
    widths = [corrected(*[(JOB, 0.01)] * count).width for count in range(1, 11)]
    assert widths == sorted(widths, reverse=True)
    assert sqrt(PARTS.run / PARTS.total) < widths[-1] < widths[0] < 1.0


def test_a_narrowed_range_keeps_its_share_of_the_logarithms() -> None:
    correction = LevelCorrection(runs=1, same_model=1, factor=1.2, width=0.5)
    found = correction.narrow(Interval(low=0.64, high=1.44))
    assert (found.low, found.high) == pytest.approx((0.8, 1.2))


def test_memory_moves_by_the_factor_and_narrows() -> None:
    correction = LevelCorrection(runs=2, same_model=2, factor=exp(0.1), width=0.5)
    found = narrow_memory(correction, MemorySpread(mean=0.02, deviation=0.2, rows=3))
    assert (found.mean, found.deviation, found.rows) == (pytest.approx(0.11), pytest.approx(0.1), 5)


def test_memory_above_the_prediction_raises_the_risk() -> None:
    usual = MemorySpread(mean=0.0, deviation=0.1)
    higher = narrow_memory(LevelCorrection(runs=1, same_model=1, factor=1.1, width=1.0), usual)
    assert higher.oom_risk(70.0, 80.0) > usual.oom_risk(70.0, 80.0)


def test_time_and_memory_are_corrected_each_by_the_runs_that_state_them() -> None:
    timed = AnchorRun(id="a", model="m", conditions=JOB, step_s=1.1, predicted_step_s=1.0)
    weighed = AnchorRun(id="b", model="m", conditions=JOB, memory_bytes=1.1, predicted_memory_bytes=1.0)
    found = anchor_job(Anchor(name="runs.csv", runs=(timed, weighed)), JOB, known=True)
    assert found.step_time is not None
    assert found.memory is not None
    assert (found.step_time.runs, found.memory.runs) == (1, 1)
    assert found.memory.factor == pytest.approx(1.1 ** (MEMORY.level / MEMORY.total))


def test_a_level_of_unknown_software_follows_a_run_more() -> None:
    run = AnchorRun(id="a", model="m", conditions=JOB, step_s=1.1, predicted_step_s=1.0)
    anchor = Anchor(name="runs.csv", runs=(run,))
    known, unknown = (anchor_job(anchor, JOB, known=each).step_time for each in (True, False))
    assert known is not None
    assert unknown is not None
    assert 1.0 < known.factor < unknown.factor < 1.1
    assert KNOWN.total < UNKNOWN.total


@pytest.mark.parametrize("times", [0.8, 1.3])
@pytest.mark.parametrize(
    "text", ["dp8 tp2 pp2 mb1 zero1 1f1b", "dp32 mb1 zero3 full", "dp8 tp4 sp mb2 zero1"]
)
def test_every_second_of_a_step_is_multiplied(text: str, times: float) -> None:
    constants, cluster = load_constants(), load_cluster("h100:32")
    stack, efficiency = constants.stack("megatron-core"), constants.efficiency(cluster.device)
    job = Job(
        graph=build_graph(load_model("llama3-8b")), cluster=cluster, stack=stack, efficiency=efficiency,
        seq=4096, global_batch=64,
    )  # fmt: skip
    slow = slow_place(Place(cluster=cluster, efficiency=efficiency), times)
    slower = replace(job, cluster=slow.cluster, efficiency=slow.efficiency, stack=slow_stack(stack, times))
    strategies = stack_strategies([parse_strategy(text)])
    before, after = estimate(job, strategies), estimate(slower, strategies)
    assert after.step_s[0] == pytest.approx(times * before.step_s[0], rel=1e-12)
    assert after.total_bytes[0] == before.total_bytes[0]
