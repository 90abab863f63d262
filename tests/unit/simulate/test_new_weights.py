"""Sums of gradients and gathers of new weights: in turn on their links, and before what waits for them."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.entries import LANES
from trainwright.program.lower import lower
from trainwright.program.setting import Setting
from trainwright.program.tabulate import tabulate
from trainwright.simulate.simulate import simulate
from trainwright.simulate.timeline import Timeline

BATCH = 64


def job(cluster_text: str) -> Job:
    cluster, constants = load_cluster(cluster_text), load_constants()
    return Job(
        graph=build_graph(load_model("llama3-8b")), cluster=cluster, stack=constants.stack("megatron-core"),
        efficiency=constants.efficiency(cluster.device), seq=2048, global_batch=BATCH,
    )  # fmt: skip


def timeline(asked: Job, text: str) -> Timeline:
    plan = expand(parse_strategy(text), asked.graph, BATCH)
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
        seq=asked.seq,
    )  # fmt: skip
    return simulate(tabulate(lower(setting, plan)))


def found(line: Timeline, prefix: str, suffix: str) -> list[int]:
    labels = [line.table.labels[label] for label in line.table.label]
    return [n for n, each in enumerate(labels) if each.startswith(prefix) and each.endswith(suffix)]


@pytest.mark.parametrize("zero", [1, 2])
def test_a_layer_waits_until_its_new_weights_are_gathered(zero: int) -> None:
    line = timeline(job("h100:16x2@10Gbps"), f"dp32 mb1 zero{zero} bf16")
    for layer in (0, 7, 31):
        gathered_s = line.end_s[found(line, f"weights/layer.{layer} ", " P")]
        forward_s = line.start_s[found(line, f"layer.{layer}/", " F")]
        assert len(gathered_s) == 1
        assert forward_s.min() >= gathered_s[0] > 0.0


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ("dp32 mb1 zero1 bf16", 0.01),
        ("dp16 tp2 mb1 zero2 bf16", 0.02),
        ("dp8 tp2 pp2 mb1 zero1 1f1b bf16 order=tp-pp-cp-dp", 0.01),
        # Which chunk's gathers hide behind which microbatch is a mean in the closed form.
        ("dp4 tp2 pp4 vpp4 mb1 zero1 interleaved bf16 order=tp-pp-cp-dp", 0.05),
    ],
)
def test_a_sharded_optimizer_over_a_slow_link_takes_as_long_in_closed_form(text: str, within: float) -> None:
    asked = job("h100:16x2@10Gbps")
    closed = float(estimate(asked, stack_strategies([parse_strategy(text)])).step_s[0])
    assert timeline(asked, text).step_s == pytest.approx(closed, rel=within)


def test_gradients_and_new_weights_cross_a_slow_link_one_after_the_other() -> None:
    # 8.03e9 parameters in a ring over 32 devices: 31/32 of 2 bytes of weights, then 31/32 of 4 bytes of
    # gradients, over 1.25 GB/s at most: 37.3 s. Gradients come after all weights but the last are there.
    line = timeline(job("h100:16x2@10Gbps"), "dp32 mb1 zero1 bf16")
    assert line.step_s > 31 / 32 * 6 * 8.03e9 / 1.25e9
    assert np.nanmax(line.end_s) == line.step_s


def test_what_blocks_of_reductions_follows_all_that_hides() -> None:
    # Generic software hides part of each reduction. Chunks have one each, and links carry one at a time.
    asked = job("h100:16x2@10Gbps")
    asked = replace(asked, stack=load_constants().stack("generic"))
    line = timeline(asked, "dp8 tp2 pp2 vpp4 mb1 zero0 interleaved bf16 order=tp-pp-cp-dp")
    where = line.table.lane // len(LANES)
    for place in set(where.tolist()):
        tasks = [n for n in found(line, "gradients/", " S") if where[n] == place]
        order = sorted(tasks, key=lambda n: line.start_s[n])
        assert len(tasks) > 4
        for one, other in pairwise(order):
            assert line.start_s[other] >= line.end_s[one] - 1e-9
