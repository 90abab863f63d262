"""Pipelines at two sites: who holds up whom over the border between them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.cost.network import level_links
from trainwright.estimate.ranks import build_ranks
from trainwright.estimate.sends import Sends, build_sends
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.mapping import AXES
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.simulate.whole import simulate_plan

PLANS = (
    "dp1 cp8 pp2 mb4 zero0 gpipe bf16",  # forwards wait on the second stage, backwards on the first
    "dp1 cp4 pp4 mb4 zero0 gpipe bf16",
    "dp1 cp2 pp8 mb8 zero1 1f1b bf16",  # fewer microbatches than stages
    "dp2 cp1 pp8 mb2 zero1 1f1b bf16",
    "dp2 cp2 pp4 mb1 zero1 1f1b bf16",
    "dp1 cp4 pp4 mb16 zero1 zb bf16",
    "dp1 cp8 pp2 vpp2 mb2 zero1 interleaved bf16",  # each row has a chunk less to receive
    "dp1 cp4 pp4 vpp4 mb8 zero1 interleaved bf16",  # all forwards come before all backwards
    "dp1 cp4 pp4 vpp2 mb1 zero1 interleaved bf16",
)


def job(cluster_text: str, rate: float = 1.0, latency: float = 1.0) -> Job:
    """On a cluster whose outermost link has so many times its rate and its latency."""
    cluster, constants = load_cluster(cluster_text), load_constants()
    *inner, link = cluster.network.levels
    link = replace(link, bytes_per_s=link.bytes_per_s * rate, latency_s=link.latency_s * latency)
    return Job(
        graph=build_graph(load_model("llama2-7b")),
        cluster=replace(cluster, network=replace(cluster.network, levels=(*inner, link))),
        stack=constants.stack("megatron-core"), efficiency=constants.efficiency(cluster.device), seq=2048,
        global_batch=32,
    )  # fmt: skip


def sends(cluster_text: str, text: str) -> Sends:
    asked, strategies = job(cluster_text), stack_strategies([parse_strategy(text)])
    links = level_links(asked.cluster, asked.efficiency, asked.stack)
    sizes = {axis: getattr(strategies, axis) for axis in AXES}
    return build_sends(links, build_ranks(links, sizes, strategies.order), strategies.pp)


@pytest.mark.parametrize("text", PLANS)
def test_both_say_the_same_of_a_pipeline_at_two_sites(text: str) -> None:
    asked = job("h100:8x2@2Gbps")
    closed = float(estimate(asked, stack_strategies([parse_strategy(text)])).step_s[0])
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
        seq=asked.seq,
    )  # fmt: skip
    simulated = simulate_plan(setting, expand(parse_strategy(text), asked.graph, 32)).step_s
    assert closed == pytest.approx(simulated, rel=0.03)


def test_a_better_link_between_sites_never_slows_a_pipeline() -> None:
    strategies = stack_strategies([parse_strategy(text) for text in PLANS])
    for change in ("rate", "latency"):
        # The link stays one between sites: 0.25 ms at least.
        better = [(rate if change == "rate" else 1.0 / rate) for rate in (1.0, 1.5, 4.0, 20.0)]
        found = [estimate(job("h100:8x2@2Gbps", **{change: each}), strategies).step_s for each in better]
        for slow, fast in pairwise(found):
            assert (fast <= slow * (1 + 1e-9)).all()


def test_of_eight_stages_at_two_sites_one_border_is_slow() -> None:
    found = sends("h100:8x2@2Gbps", "dp2 pp8 mb1 zero0 1f1b bf16")
    assert found.leaves[0]
    assert (found.borders[0], found.row[0]) == (1.0, 3.0)
    # 2 Gb/s shared by 8 devices: 32 ns a byte at least
    assert found.more_s_per_byte[0] > 8 / 0.25e9 * 0.99


def test_of_stages_at_four_sites_each_border_is_slow_and_none_is_slower() -> None:
    found = sends("h100:8x4@2Gbps", "dp8 pp4 mb1 zero0 1f1b bf16")
    assert (found.borders[0], found.more_s_per_byte[0], found.more_latency_s[0]) == (3.0, 0.0, 0.0)
    assert found.latency_s[0] >= 5e-3


def test_a_pipeline_inside_each_site_leaves_none() -> None:
    found = sends("h100:8x2@2Gbps", "dp2 pp8 mb1 zero0 1f1b bf16 order=tp-cp-pp-dp")
    assert not found.leaves[0]
    assert np.all(found.more_s(np.full(1, 1e6)) == 0.0)


def test_software_that_is_slow_to_send_makes_no_sites_of_nodes() -> None:
    # 0.4 ms of software at every hop between nodes, as of a link of 80 km
    asked = job("h100:16")
    slow = replace(asked, stack=replace(asked.stack, outer_extra_s=4e-4))
    strategies = stack_strategies([parse_strategy("dp1 pp16 mb1 zero0 1f1b bf16")])
    links = level_links(slow.cluster, slow.efficiency, slow.stack)
    sizes = {axis: getattr(strategies, axis) for axis in AXES}
    found = build_sends(links, build_ranks(links, sizes, strategies.order), strategies.pp)
    assert not found.leaves[0]
    assert found.more_s(np.full(1, 1e6))[0] == 0.0
