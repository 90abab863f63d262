"""Embeddings tied to heads at another site."""

import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.simulate.whole import simulate_plan

BATCH = 256


def job(model: str, cluster_text: str) -> Job:
    cluster, constants = load_cluster(cluster_text), load_constants()
    return Job(
        graph=build_graph(load_model(model)), cluster=cluster, stack=constants.stack("megatron-core"),
        efficiency=constants.efficiency(cluster.device), seq=1024, global_batch=BATCH,
    )  # fmt: skip


def shown_s(asked: Job, text: str) -> tuple[float, float]:
    """The step, and what of it is communication of gradients and weights."""
    found = estimate(asked, stack_strategies([parse_strategy(text)]))
    return float(found.step_s[0]), float(found.time_s["dp"][0])


def simulated_s(asked: Job, text: str) -> float:
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
        seq=asked.seq,
    )  # fmt: skip
    return simulate_plan(setting, expand(parse_strategy(text), asked.graph, BATCH)).step_s


@pytest.mark.parametrize(
    "text",
    [
        "dp16 pp2 mb4 zero0 1f1b bf16",
        "dp16 pp2 mb4 zero1 1f1b bf16",
        "dp16 pp2 mb4 zero2 1f1b bf16",
        "dp16 pp2 mb4 zero3 hsdp8 1f1b bf16",
        "dp8 pp4 mb4 zero1 1f1b bf16",
        "dp8 cp2 pp2 mb4 zero1 1f1b bf16 order=tp-dp-cp-pp",
    ],
)
def test_both_charge_for_tied_weights_at_two_sites(text: str) -> None:
    asked = job("gpt2-xl", "h100:16x2@10Gbps")
    assert shown_s(asked, text)[0] == pytest.approx(simulated_s(asked, text), rel=0.04)


def test_tied_gradients_cross_the_link_once_and_nothing_hides_them() -> None:
    # 50,304 x 1,600 gradients of 4 bytes in one sum over 2 x 16 devices: each site sends them once, 0.32 GB
    # over 1.25 GB/s: 0.26 s at least.
    text = "dp16 pp2 mb4 zero0 1f1b bf16"
    far, near = (shown_s(job("gpt2-xl", name), text)[1] for name in ("h100:16x2@10Gbps", "h100:32"))
    assert 0.25 < far - near < 0.35


def test_weights_that_are_not_tied_add_nothing() -> None:
    text = "dp16 pp2 mb4 zero0 1f1b bf16"
    far, near = (shown_s(job("opt-30b", name), text)[1] for name in ("h100:16x2@10Gbps", "h100:32"))
    untied, same = (shown_s(job("llama2-7b", name), text)[1] for name in ("h100:16x2@10Gbps", "h100:32"))
    assert untied == pytest.approx(same, rel=1e-9)
    assert far > near + 0.5  # OPT ties its embedding: 50,272 x 7,168 gradients
