"""Pipelines whose stages stand on both sides of a slow link."""

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.cost.network import level_links
from trainwright.cost.source import build_source
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.network import Network, levels_between
from trainwright.program.setting import Setting
from trainwright.simulate.whole import simulate_plan


def job(cluster_text: str) -> Job:
    cluster, constants = load_cluster(cluster_text), load_constants()
    source = build_source(None, cluster_text, cluster, constants, None)
    graph = build_graph(load_model("llama3-8b"))
    return Job(
        graph=graph, cluster=cluster, stack=source.stack, efficiency=source.efficiency, seq=1024,
        global_batch=64,
    )  # fmt: skip


def test_neighbours_on_both_sides_of_a_border_are_joined_by_the_level_beyond() -> None:
    asked = job("h100:16x2@10Gbps")
    network = Network(links=level_links(asked.cluster, asked.efficiency, asked.stack))
    levels = levels_between(network, np.array([0, 6, 12, 15]), np.array([4, 10, 20, 15]))
    assert levels.tolist() == [1, 2, 3, 0]


def test_a_pipeline_over_two_sites_pays_for_the_link_between_them_though_its_stages_are_near() -> None:
    strategy = parse_strategy(
        "dp8 pp4 mb1 zero1 1f1b bf16"
    )  # stages of 8: the third starts at the other site
    steps = {}
    for name in ("h100:16x2@1Gbps", "h100:32"):
        asked = job(name)
        setting = Setting(
            graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
            seq=asked.seq,
        )  # fmt: skip
        simulated = simulate_plan(setting, expand(strategy, asked.graph, 64)).step_s
        steps[name] = simulated, float(estimate(asked, stack_strategies([strategy])).step_s[0])
    # 64 sequences of 1,024 x 4,096 numbers of 2 bytes cross once each way, 8 of 16 devices have half of
    # 125 MB/s: 0.54 GB / 62.5 MB/s = 8.6 s each way at least
    for simulated, closed in steps.values():
        assert closed == pytest.approx(simulated, rel=0.02)
    for slow_s, fast_s in zip(steps["h100:16x2@1Gbps"], steps["h100:32"], strict=True):
        assert slow_s > fast_s + 8.6
