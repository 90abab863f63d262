"""Advice: every change is what it says, and the way leads to the best."""

import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.search.advice import IDEAS, advise
from trainwright.search.find import Question, find_plans
from trainwright.search.usual import able_knobs


def job() -> Job:
    cluster, constants = load_cluster("h100:16"), load_constants()
    return Job(
        graph=build_graph(load_model("llama3-8b")), cluster=cluster, stack=constants.stack("megatron-core"),
        efficiency=constants.efficiency(cluster.device), seq=8192, global_batch=64,
    )  # fmt: skip


@pytest.fixture(scope="module")
def advice():
    return advise(job(), parse_strategy("dp2 tp4 pp2 mb1 zero0 full bf16"))


def test_changes_alone_are_in_order_and_each_gains(advice) -> None:
    gains = [change.gain for change in advice.alone]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0
    assert advice.alone[0].before == advice.today


def test_a_change_touches_the_knobs_of_its_idea_only(advice) -> None:
    for change in (*advice.alone, *advice.steps):
        before, after = change.before.strategy, change.after.strategy
        changed = {
            knob for knob in before.__dataclass_fields__ if getattr(before, knob) != getattr(after, knob)
        }
        assert changed <= {*IDEAS[change.idea], "shard"}


def test_the_steps_lead_from_today_to_the_best(advice) -> None:
    assert advice.steps[0].before == advice.today
    for one, two in zip(advice.steps, advice.steps[1:], strict=False):
        assert one.after == two.before
    assert advice.steps[-1].after.strategy == advice.best.strategy
    assert advice.best.step_s <= min(change.after.step_s for change in advice.alone)


def test_figures_are_those_of_the_estimate(advice) -> None:
    found = estimate(job(), stack_strategies([advice.today.strategy]))
    assert advice.today.step_s == found.step_s[0]


def test_what_does_not_fit_is_told_what_would() -> None:
    found = advise(job(), parse_strategy("dp16 mb4 zero0 bf16"))
    assert not found.today.fits
    assert all(change.after.fits for change in found.alone)
    assert found.best is not None
    assert found.best.fits


def test_the_best_is_never_slower_than_what_is_in_use() -> None:
    fastest = find_plans(
        Question(
            job=job(), batches=(64,), fixed=able_knobs(job().stack) | {"precision": (1,)},
            most={"vpp": job().stack.capability.most_vpp}, top=1,
        )
    ).best  # fmt: skip
    for index in range(5):
        found = advise(job(), fastest.strategies[index])
        assert found.best is not None
        assert found.best.step_s <= found.today.step_s * (1 + 1e-12)
