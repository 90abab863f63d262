"""Summaries: numbers that can be checked against each other by hand."""

from dataclasses import replace

import pytest

from tests.builders import gpt, round_cluster, round_job
from trainwright.cluster.power import Activity, activity_of, device_w, power_w
from trainwright.cost.load import Interval
from trainwright.economics.goodput import Reliability
from trainwright.estimate.step import estimate
from trainwright.estimate.types import TIMES
from trainwright.model.graph import parameters
from trainwright.model.totals import forward_flops, model_flops
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.report.limits import limits
from trainwright.report.summary import Summary, Terms, recomputed_flops, summarize
from trainwright.search.rank import objective

JOB = round_job(gpt(), round_cluster(8), 64)
TERMS = Terms(interval=Interval(low=0.8, high=1.5), tokens=1e9, dollars_per_device_hour=3.0)


def summary(strategy: Strategy | None = None) -> Summary:
    return summarize(JOB, stack_strategies([strategy or Strategy(dp=8, zero=1)]), TERMS)[0]


def test_tokens_per_second_are_the_batch_over_the_step() -> None:
    each = summary()
    assert each.tokens_per_s == pytest.approx(64 * 1024 / each.step_s)
    assert each.tokens_per_s_per_device == pytest.approx(each.tokens_per_s / 8)


def test_utilisation_is_model_flops_over_peak() -> None:
    each = summary()
    # eight devices of 100 TFLOP/s
    assert each.mfu == pytest.approx(model_flops(JOB.graph, 64, 1024) / (each.step_s * 800e12))
    assert each.hfu == each.mfu


def test_full_recomputation_counts_a_forward_of_the_layers_again() -> None:
    layers = tuple(s for s in JOB.graph.segments if s.block.name == "layer")
    forward = forward_flops(replace(JOB.graph, segments=layers), 64, 1024)
    assert recomputed_flops(JOB, Strategy(dp=8, recompute="full")) == pytest.approx(forward)
    # two of the four layers of each stage
    half = Strategy(dp=4, pp=2, recompute="full", recompute_layers=2)
    assert recomputed_flops(JOB, half) == pytest.approx(forward / 2)


def test_selective_recomputation_repeats_no_flops_with_fused_attention() -> None:
    assert recomputed_flops(JOB, Strategy(dp=8, recompute="selective")) == 0
    unfused = replace(JOB, stack=replace(JOB.stack, attention="unfused"))
    assert recomputed_flops(unfused, Strategy(dp=8, recompute="core_attn")) > 0


def test_the_range_is_even_in_logarithms() -> None:
    each = summary()
    assert each.low_s == pytest.approx(0.8 * each.step_s)
    assert each.high_s == pytest.approx(1.5 * each.step_s)


def test_parts_add_up() -> None:
    each = summary(Strategy(dp=2, tp=2, pp=2, zero=1))
    assert sum(each.time_s.values()) == pytest.approx(each.step_s)
    assert sum(each.memory_bytes.values()) == pytest.approx(each.total_bytes)


def test_a_budget_is_time_money_and_energy() -> None:
    each = summary()
    seconds = 1e9 / each.tokens_per_s
    assert each.budget.days == pytest.approx(seconds / 86400)
    assert each.budget.dollars == pytest.approx(8 * 3.0 * seconds / 3600)
    assert each.budget.kwh == pytest.approx(each.power_w * seconds / 3.6e6)


def test_energy_per_token_is_power_over_speed() -> None:
    each = summary()
    assert each.joules_per_token == pytest.approx(each.power_w / each.tokens_per_s)
    assert each.joules_per_token * each.tokens_per_joule == pytest.approx(1.0)


def test_money_and_carbon_follow_from_hours_and_energy() -> None:
    terms = replace(TERMS, dollars_per_kwh=0.1, grid_kg_per_kwh=0.5)
    budget = summarize(JOB, stack_strategies([Strategy(dp=8)]), terms)[0].budget
    assert budget.device_hours == pytest.approx(8 * 24 * budget.days)
    assert budget.dollars == pytest.approx(3.0 * budget.device_hours + 0.1 * budget.kwh)
    assert budget.dollars_per_million_tokens == pytest.approx(budget.dollars / 1000)  # a billion tokens
    assert budget.co2e_kg == pytest.approx(0.5 * budget.kwh)


def test_interruptions_lengthen_a_run_and_leave_its_step() -> None:
    # half of the time is lost: planned stops of 12 h a day, and nothing else
    stops = Reliability(failures_per_device_day=0.0, planned_per_day=1.0, planned_s=43200.0, step_jitter=0.0)
    steady, stopped = (
        summarize(JOB, stack_strategies([Strategy(dp=8)]), replace(TERMS, reliability=each))[0]
        for each in (None, stops)
    )
    assert stopped.step_s == steady.step_s
    assert stopped.effective_tokens_per_s == pytest.approx(steady.tokens_per_s / 2)
    assert stopped.budget.days == pytest.approx(2 * steady.budget.days)
    assert stopped.budget.steady_days == steady.budget.days
    assert stopped.budget.dollars == pytest.approx(2 * steady.budget.dollars)


def test_a_checkpoint_has_14_bytes_for_a_parameter_and_12_in_full_precision() -> None:
    terms = replace(TERMS, reliability=Reliability())
    both = stack_strategies([Strategy(dp=8), Strategy(dp=8, precision="fp32")])
    sizes = [each.goodput.checkpoint_bytes for each in summarize(JOB, both, terms) if each.goodput]
    assert sizes == [14 * parameters(JOB.graph), 12 * parameters(JOB.graph)]


def test_a_batch_as_large_as_the_critical_one_doubles_the_tokens() -> None:
    terms = replace(TERMS, critical_batch_tokens=64 * 1024.0)
    charged = summarize(JOB, stack_strategies([Strategy(dp=8)]), terms)[0].budget
    assert (charged.tokens, charged.least_tokens) == (2e9, 1e9)


def test_power_goes_from_idle_to_peak_with_hosts_and_cooling() -> None:
    # 8 devices, 50 to 500 W each, 100 W of host beside each, pue 1.2; awake is 0.55 of what is above idle
    waiting, working = Activity(matrix=0.0, memory=0.0, link=0.0), Activity(matrix=1.0, memory=1.0, link=1.0)
    assert device_w(JOB.cluster, waiting) == pytest.approx(50 + 450 * 0.55)
    assert power_w(JOB.cluster, waiting) == pytest.approx(8 * (50 + 450 * 0.55 + 100) * 1.2)
    assert power_w(JOB.cluster, working) == pytest.approx(8 * 600 * 1.2)


def test_communication_draws_less_than_products_and_more_than_nothing() -> None:
    link = Activity(matrix=0.0, memory=0.0, link=1.0)
    matrix = Activity(matrix=1.0, memory=0.0, link=0.0)
    watts = {"link": device_w(JOB.cluster, link), "matrix": device_w(JOB.cluster, matrix)}
    assert JOB.cluster.device.idle_w < watts["link"] < watts["matrix"] < JOB.cluster.device.peak_w


def test_a_device_that_exposes_communication_draws_less_but_gives_fewer_tokens_a_joule() -> None:
    hidden = activity_of({"matmul": 0.9, "dp": 0.1}, {"dp": 0.3}, 1.0)
    exposed = activity_of({"matmul": 0.9, "dp": 0.6}, {"dp": 0.8}, 1.5)
    one, two = (float(device_w(JOB.cluster, each)) for each in (hidden, exposed))
    assert two < one
    assert 1.0 / one > (1.0 / 1.5) / two


def test_several_batches_are_summarized_each_at_its_own() -> None:
    import numpy as np

    both = stack_strategies([Strategy(dp=8), Strategy(dp=8)])
    first, second = summarize(replace(JOB, global_batch=np.array([32, 64])), both, TERMS)
    assert (first.global_batch, second.global_batch) == (32, 64)
    assert first.step_s < second.step_s


def test_the_largest_cause_is_named_first() -> None:
    each = replace(summary(), step_s=10.0, time_s={"matmul": 6.0, "bubble": 3.0, "dp": 0.9, "tp": 0.1})
    sentences = limits(each)
    assert sentences[0].startswith("Matrix products: 60% of the step")
    assert sentences[1].startswith("The pipeline bubble: 30% of the step; more microbatches")
    assert not any("ensor-parallel" in sentence for sentence in sentences)


def test_memory_limits_a_plan_if_more_of_it_would_be_faster() -> None:
    each = replace(summary(), step_s=11.0)
    assert limits(each, roomier_step_s=10.0)[-1].endswith(
        "with 25 % more the best plan would be 10.0% faster."
    )
    assert limits(each, roomier_step_s=11.0)[-1].endswith("it does not limit the plan.")


def test_every_part_of_a_step_has_a_cause_and_a_remedy() -> None:
    each = replace(summary(), step_s=1.0)
    for name in TIMES:
        assert "100% of the step" in limits(replace(each, time_s={name: 1.0}))[0]


@pytest.mark.parametrize("strategy", [Strategy(dp=8, zero=1), Strategy(dp=2, tp=2, pp=2, zero=1)])
def test_the_energy_that_ranks_is_nearly_the_energy_that_is_shown(strategy: Strategy) -> None:
    joules_per_token = objective("energy")(JOB, estimate(JOB, stack_strategies([strategy])))[0]
    assert summary(strategy).budget.kwh == pytest.approx(1e9 * joules_per_token / 3.6e6, rel=0.03)
