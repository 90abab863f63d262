"""Simulated plans in numbers and tables."""

import io
from dataclasses import replace

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster, round_job
from trainwright.cost.load import Interval
from trainwright.economics.goodput import Reliability
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.report.account import Account, account_of, predict
from trainwright.report.account_tables import account_lines, memory_table, render_label, time_table, title
from trainwright.report.summary import Terms, summarize
from trainwright.report.tables import open_console, show
from trainwright.simulate.whole import simulate_plan

GRAPH = gpt(layers=4)
INTERVAL = Interval(low=0.5, high=2.0)
TERMS = Terms(interval=INTERVAL, tokens=1e9, dollars_per_device_hour=1.0)
JOB = round_job(GRAPH, round_cluster(8), global_batch=16)


def account(text: str, *, free: bool = False, terms: Terms = TERMS, devices: int = 8) -> Account:
    setting = Setting(
        graph=GRAPH, cluster=round_cluster(8), stack=free_stack(), efficiency=perfect(), seq=1024
    )
    strategy = parse_strategy(text)
    found = simulate_plan(setting, expand(strategy, GRAPH, 16))
    closed_form = predict(JOB, strategy) if devices == 8 else None
    return account_of(found, terms, closed_form=closed_form, free=free)


@pytest.mark.parametrize("text", ["dp8", "dp2 tp2 pp2 full", "tp2 pp4 1f1b"])
def test_utilisation_counts_as_that_of_a_summary(text: str) -> None:
    (summary,) = summarize(JOB, stack_strategies([parse_strategy(text)]), TERMS)
    found = account(text)
    assert found.mfu * found.step_s == pytest.approx(summary.mfu * summary.step_s)
    assert found.hfu / found.mfu == pytest.approx(summary.hfu / summary.mfu)
    assert (found.low_s, found.high_s) == (0.5 * found.step_s, 2.0 * found.step_s)


@pytest.mark.parametrize("text", ["dp8", "dp8 zero3", "tp8 sp full", "dp2 tp2 pp2", "tp2 pp4 1f1b"])
def test_power_and_money_are_those_of_a_summary_of_the_same_step(text: str) -> None:
    (summary,) = summarize(JOB, stack_strategies([parse_strategy(text)]), TERMS)
    found = account(text)
    assert found.step_s == pytest.approx(summary.step_s, rel=0.03)
    # A summary takes every device to compute as long as the mean one; here each place has its own power.
    for name in ("device_w", "power_w", "joules_per_token", "tokens_per_joule"):
        assert getattr(found, name) == pytest.approx(getattr(summary, name), rel=0.04)
    for name in ("days", "device_hours", "dollars", "dollars_per_million_tokens", "kwh", "co2e_kg"):
        assert getattr(found.budget, name) == pytest.approx(getattr(summary.budget, name), rel=0.04)


def test_what_a_run_takes_follows_from_its_step() -> None:
    found = account("dp2 tp2 pp2 zero1")
    tokens_per_s = 16 * 1024 / found.step_s
    hours = 1e9 / tokens_per_s / 3600
    assert found.budget.device_hours == pytest.approx(8 * hours)
    assert found.budget.dollars == pytest.approx(8 * hours)  # at 1 $ an hour
    assert found.joules_per_token == pytest.approx(found.power_w / tokens_per_s)
    assert found.budget.kwh == pytest.approx(1e9 * found.joules_per_token / 3.6e6)
    # 100 W of host for each device, PUE 1.2
    assert found.power_w == pytest.approx(8 * (found.device_w + 100) * 1.2)
    assert found.goodput is None
    assert found.effective_tokens_per_s == pytest.approx(tokens_per_s)


def test_interruptions_are_told_if_they_are_asked_about() -> None:
    terms = replace(TERMS, reliability=Reliability(failures_per_device_day=1.0))
    found = account("dp8", terms=terms)
    assert found.goodput is not None
    assert found.effective_tokens_per_s < found.tokens_per_s
    assert found.budget.days > found.budget.steady_days
    assert any("Goodput" in line for line in account_lines(found))


def test_a_stage_that_waits_draws_less() -> None:
    # Of one microbatch, two stages each wait while the other works: half of the time nothing runs. The last
    # one also has the head.
    found = account("dp4 pp2 mb4 gpipe")
    alone = account("dp8")
    assert len(found.place_w) == 2
    assert found.place_w[0] < found.place_w[1]
    assert max(found.place_w) < min(alone.place_w)
    assert found.device_w == pytest.approx(sum(found.place_w) / 2)


def test_devices_that_a_plan_leaves_out_are_not_paid_for() -> None:
    found = account("dp4", devices=4)
    assert (found.devices, found.power_w) == (4, pytest.approx(4 * (found.device_w + 100) * 1.2))
    assert found.budget.device_hours == pytest.approx(4 * 24 * found.budget.days)


def test_the_parts_of_the_time_add_up_to_the_step() -> None:
    found = account("dp2 tp2 pp2 zero1")
    assert sum(each.busiest_s for each in found.time_s.values()) == pytest.approx(found.step_s)
    assert sum(each.mean_s for each in found.time_s.values()) == pytest.approx(found.step_s)


def test_tasks_of_all_layers_are_counted_together() -> None:
    found = account("dp8")
    assert not any("layer.0" in label for label in found.path_s)
    assert found.path_s["layer.*/ffn.up F"] > 0
    assert any(each.label.startswith("layer.*/") for each in found.holdings)
    assert list(found.path_s.values()) == sorted(found.path_s.values(), reverse=True)


def test_what_is_free_is_found_when_it_is_asked_for() -> None:
    assert account("dp8").free == ()
    assert "matmul" in {each.what for each in account("dp8", free=True).free}


def test_labels_are_said_in_words() -> None:
    assert render_label("layer.3/ffn.up R") == "layer.3/ffn.up, recomputed"
    assert (
        render_label("d:layer.3/norm1.out all_gather I")
        == "gradient of layer.3/norm1.out all-gather, backward"
    )
    assert render_label("before the step") == "before the step"


def test_a_plan_is_told_in_lines() -> None:
    found = account("dp2 tp2 pp2 zero1")
    assert title(found).startswith(
        "Plan dp2 tp2 pp2 mb1 zero1 1f1b bf16: 8 devices in 2 places, 8 microbatches"
    )
    speed, run, energy, closed_form, fits = account_lines(found)
    assert "MFU" in speed
    assert "per million tokens" in run
    assert "W/device" in energy
    assert closed_form.startswith("Closed form: ")
    assert fits.startswith("It fits: ")


def test_tables_have_a_row_for_each_place_and_each_cause() -> None:
    found, text = account("dp2 tp2 pp2 zero1"), io.StringIO()
    show(open_console(text), time_table(found), memory_table(found))
    lines = text.getvalue().splitlines()
    assert any(line.split()[:2] == ["0-3", "0"] for line in lines)
    assert any(line.split()[:2] == ["4-7", "1"] for line in lines)
    assert any(line.startswith(" bubble") for line in lines)
    assert max(map(len, lines)) <= 100
