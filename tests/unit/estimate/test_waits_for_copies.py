"""Interleaved chunks whose activations go to the host: what waits for copies hides other things."""

from dataclasses import replace

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

CASES = (
    # Reductions go beside passes of other chunks, which wait for copies: that hides them as work does.
    ("mixtral-8x7b", "h100:64", 32,
     "dp2 tp8 cp2 allgather pp2 vpp4 ep2 mb8 zero1 interleaved selective offload-activations bf16", 0.09),
    # The first copy back goes beside a forward of six layers that waits for four copies out.
    ("gpt3-1.3b", "a100:16", 128,
     "dp1 tp8 pp2 vpp2 mb4 zero0 interleaved offload-activations bf16", 0.03),
)  # fmt: skip


def job(model: str, cluster_text: str, batch: int, memory: float = 1.0) -> Job:
    """On devices whose memory is so many times as fast."""
    cluster, constants = load_cluster(cluster_text), load_constants()
    tiers = tuple(replace(tier, bytes_per_s=tier.bytes_per_s * memory) for tier in cluster.device.memory)
    return Job(
        graph=build_graph(load_model(model)),
        cluster=replace(cluster, device=replace(cluster.device, memory=tiers)),
        stack=constants.stack("megatron-core"), efficiency=constants.efficiency(cluster.device), seq=2048,
        global_batch=batch,
    )  # fmt: skip


def step_s(asked: Job, text: str) -> float:
    return float(estimate(asked, stack_strategies([parse_strategy(text)])).step_s[0])


@pytest.mark.parametrize(("model", "cluster", "batch", "text", "within"), CASES)
def test_faster_memory_never_slows_a_step_that_waits_for_copies(
    model: str, cluster: str, batch: int, text: str, within: float
) -> None:
    found = [step_s(job(model, cluster, batch, memory), text) for memory in (1.0, 1.3, 2.0, 4.0)]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(("model", "cluster", "batch", "text", "within"), CASES)
def test_the_simulation_says_the_same_of_steps_that_wait_for_copies(
    model: str, cluster: str, batch: int, text: str, within: float
) -> None:
    asked = job(model, cluster, batch)
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
        seq=asked.seq,
    )  # fmt: skip
    simulated = simulate_plan(setting, expand(parse_strategy(text), asked.graph, batch)).step_s
    assert step_s(asked, text) == pytest.approx(simulated, rel=within)


@pytest.mark.parametrize("layers", [1, 2, 8, 23])
@pytest.mark.parametrize(
    "text", ["dp16 mb4 zero3", "dp8 tp2 sp mb4 zero1 no-overlap", "dp8 pp2 mb4 zero1 1f1b"]
)
def test_the_simulation_says_the_same_of_some_layers_on_the_host(text: str, layers: int) -> None:
    asked = job("gpt3-1.3b", "a100:16", 128)  # 24 layers
    strategy = parse_strategy(f"{text} offload-activations{min(layers, 11) if 'pp2' in text else layers}")
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency,
        seq=asked.seq,
    )  # fmt: skip
    simulated = simulate_plan(setting, expand(strategy, asked.graph, 128))
    found = estimate(asked, stack_strategies([strategy]))
    assert found.step_s[0] == pytest.approx(simulated.step_s, rel=0.03)
    fullest = max(simulated.needs, key=lambda each: each.total_bytes)
    # Where copies keep up, the layer that is counted on its way has left: of 24 layers, 4 %.
    assert found.total_bytes[0] == pytest.approx(fullest.total_bytes, rel=0.1)
