"""Mappings: closed form and simulation follow them alike; on one level they do not matter."""

from dataclasses import replace

import numpy as np
import pytest

from tests.builders import gpt, round_cluster
from trainwright.cluster.load import load_cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.mapping import ORDERS
from trainwright.plan.strategy import Strategy, parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.search.find import Question, find_plans
from trainwright.search.mappings import explain_order, mapped
from trainwright.simulate.whole import simulate_plan

CASES = (
    ("dp4 tp4 pp2 mb1 zero1 1f1b", "tp-pp-dp"),
    ("dp4 tp4 pp2 mb1 zero1 1f1b", "dp-tp-pp"),
    ("dp4 tp4 pp2 mb1 zero1 1f1b", "dp-pp-tp"),
    ("dp4 tp4 pp2 mb1 zero3 1f1b full", "pp-tp-dp"),
    ("dp8 tp4 sp mb1 zero1 full", "dp-tp"),
    ("dp4 tp2 pp4 mb1 zero0 zb", "tp-pp-dp"),
)


@pytest.mark.parametrize(("text", "order"), CASES)
def test_closed_form_and_simulation_agree_on_mappings(text: str, order: str) -> None:
    cluster, constants, graph = (
        load_cluster("h100:32"),
        load_constants(),
        build_graph(load_model("llama3-8b")),
    )
    stack, efficiency = constants.stack("megatron-core"), constants.efficiency(cluster.device)
    job = Job(graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048, global_batch=64)
    strategy = parse_strategy(f"{text} order={order}")
    usual = replace(strategy, order=ORDERS[0])
    closed = estimate(job, stack_strategies([strategy, usual]), detail=False).step_s
    setting = Setting(graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048)
    simulated = [simulate_plan(setting, expand(each, graph, 64)).step_s for each in (strategy, usual)]
    assert simulated[0] == pytest.approx(closed[0], rel=0.05)
    assert closed[0] != closed[1]
    assert (simulated[0] > simulated[1]) == (closed[0] > closed[1])


def job_on(devices: int, node: int) -> Job:
    return Job(
        graph=gpt(layers=8, hidden=2048, heads=16), cluster=round_cluster(devices, node),
        stack=Stack(name="plain"), efficiency=Efficiency(), seq=1024, global_batch=32,
    )  # fmt: skip


def test_inside_one_node_every_mapping_is_as_fast() -> None:
    job = job_on(16, 16)
    chosen, _ = mapped(stack_strategies([parse_strategy("dp2 tp2 cp2 pp2 mb1 zero1 1f1b")]))
    assert len(chosen) == 23
    steps = estimate(job, chosen, detail=False).step_s
    assert steps == pytest.approx(np.full(23, steps[0]), rel=1e-12)


def test_a_mapping_changes_no_bytes() -> None:
    job = job_on(32, 8)
    usual = stack_strategies([parse_strategy("dp4 tp4 pp2 mb1 zero1 1f1b")])
    chosen, _ = mapped(usual)
    found = estimate(job, chosen, detail=False)
    assert set(found.total_bytes) == set(estimate(job, usual, detail=False).total_bytes)


def test_the_search_takes_another_mapping_where_it_is_faster_and_says_why() -> None:
    # Tensor parallelism over two nodes beside data parallelism of many gradients: one of them must go out.
    job = job_on(16, 8)
    fixed = {"tp": (2,), "dp": (4,), "pp": (2,), "zero": (0,), "micro_batch": (8,), "sp": (0,)}
    asked = Question(job=job, batches=(32,), fixed=fixed, most={})
    usual, free = find_plans(asked).best, find_plans(replace(asked, mappings=True)).best
    assert free.step_s[0] <= usual.step_s[0]
    said = [str(free.strategies[index]) for index in range(len(free))]
    assert len(set(said)) == len(said)
    every = [
        replace(usual.strategies[0], order=order)
        for order in ("tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-dp-tp")
    ]
    steps = estimate(job, stack_strategies(every), detail=False).step_s
    assert free.step_s[0] <= steps.min() * (1 + 1e-12)


def test_the_reason_names_what_shrank() -> None:
    job = replace(job_on(64, 8), global_batch=64)
    strategy = Strategy(dp=8, tp=8, order="dp-tp")
    said = explain_order(job, strategy)
    assert said.startswith("Mapping: dp innermost on the network, then tp:")
    assert "gradients and weights" in said
