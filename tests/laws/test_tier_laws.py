"""Expanded memory: closed form and simulation agree; a faster tier never slows, and none beats own memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import gpt, round_cluster, round_device
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import EVEN, SPILL, Cluster, HybridModel, MemoryTier, Placed
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.load import load_constants
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.search.find import Question, find_plans
from trainwright.simulate.whole import simulate_plan

CASES = (
    # model, cluster, own memory, bandwidth of the expanded tier, strategy, batch
    ("gpt3-1.3b", "a100:8", 16e9, 20e9, "dp8 mb1 zero0", 32),
    ("gpt3-1.3b", "a100:8", 10e9, 100e9, "dp8 mb1 zero2", 32),
    ("gpt3-1.3b", "a100:8", 6e9, 5e9, "dp8 mb1 zero3 full", 32),
    ("llama2-7b", "h100:16", 10e9, 50e9, "dp2 tp8 sp mb1 zero1 full", 16),
    ("llama3-8b", "h100:16", 30e9, 100e9, "dp4 pp4 mb1 zero0 1f1b", 32),
    ("gpt3-13b", "a100:32", 15e9, 50e9, "dp2 tp4 pp4 mb1 zero0 zb", 32),
)


def with_tier(
    cluster: Cluster,
    own_bytes: float,
    bytes_per_s: float,
    hybrid: HybridModel = "serial",
    spill: tuple[Placed, ...] = SPILL,
    capacity_bytes: float = 1e12,
) -> Cluster:
    own, *others = cluster.device.memory
    tier = MemoryTier(
        name="cxl", capacity_bytes=capacity_bytes, bytes_per_s=bytes_per_s, latency_s=1e-6, access="direct"
    )
    memory = (replace(own, capacity_bytes=own_bytes), *others, tier)
    device = replace(cluster.device, memory=memory)
    return replace(cluster, device=device, hybrid=hybrid, spill=spill)


def both(cluster: Cluster, model: str, text: str, batch: int) -> tuple[float, float, float]:
    """Step time by closed form and by simulation, and what expanded memory adds by the first."""
    constants, graph, strategy = load_constants(), build_graph(load_model(model)), parse_strategy(text)
    stack, efficiency = constants.stack("megatron-core"), constants.efficiency(cluster.device)
    # The closed form holds buffers of unsharded gradients all the time, the simulation while they are filled.
    state = replace(stack.capability.state, unit_gradient_bytes=0.0)
    stack = replace(stack, capability=replace(stack.capability, state=state), communicator_bytes=0.0)
    job = Job(
        graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048, global_batch=batch
    )  # fmt: skip
    found = estimate(job, stack_strategies([strategy]), detail=False)
    setting = Setting(graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048)
    simulated = simulate_plan(setting, expand(strategy, graph, batch))
    return float(found.step_s[0]), simulated.step_s, float(found.tiers_s[0])


@pytest.mark.parametrize(("model", "name", "own", "rate", "text", "batch"), CASES)
@pytest.mark.parametrize("hybrid", ["serial", "concurrent"])
def test_closed_form_and_simulation_agree_on_expanded_memory(
    model: str, name: str, own: float, rate: float, text: str, batch: int, hybrid: HybridModel
) -> None:
    closed, simulated, added = both(with_tier(load_cluster(name), own, rate, hybrid), model, text, batch)
    assert added > 0.0
    assert simulated == pytest.approx(closed, rel=0.04)


def test_they_agree_where_every_tensor_lies_in_both() -> None:
    cluster = with_tier(load_cluster("a100:8"), 16e9, 100e9, "serial", EVEN)
    closed, simulated, added = both(cluster, "gpt3-1.3b", "dp8 mb1 zero0", 32)
    assert added > 0.5 * closed
    assert simulated == pytest.approx(closed, rel=0.03)


def job_on(cluster: Cluster) -> Job:
    return Job(
        graph=gpt(layers=8, hidden=2048, heads=16), cluster=cluster,
        stack=Stack(name="plain", context_bytes=0.0),
        efficiency=Efficiency(), seq=1024, global_batch=16,
    )  # fmt: skip


TEXTS = ("dp8 mb1 zero0", "dp2 tp4 sp mb2 zero1", "dp8 mb2 zero3 full", "dp2 tp2 pp2 mb1 zero1 1f1b")


@settings(max_examples=25, deadline=None)
@given(
    slower=st.floats(1e9, 2e12), times=st.floats(1.0, 100.0), own=st.floats(5e8, 6e9),
    hybrid=st.sampled_from(("serial", "concurrent")), spill=st.sampled_from((SPILL, EVEN, SPILL[::-1])),
)  # fmt: skip
def test_a_faster_tier_never_slows_and_no_tier_beats_own_memory(
    slower: float, times: float, own: float, hybrid: HybridModel, spill: tuple[Placed, ...]
) -> None:
    cluster, chosen = round_cluster(8), stack_strategies(map(parse_strategy, TEXTS))
    steps = [
        estimate(job_on(with_tier(cluster, own, rate, hybrid, spill)), chosen, detail=False).step_s
        for rate in (slower, slower * times)
    ]
    roomy = replace(round_device().memory[0], capacity_bytes=np.inf)
    endless = replace(cluster, device=replace(cluster.device, memory=(roomy,)))
    bound = estimate(job_on(endless), chosen, detail=False).step_s
    assert (steps[1] <= steps[0] * (1 + 1e-12)).all()
    assert (bound <= steps[1] * (1 + 1e-12)).all()


def test_the_gain_of_expansion_rises_with_its_bandwidth_between_none_and_endless_memory() -> None:
    def best(cluster: Cluster) -> float:
        job = job_on(cluster)
        return float(
            find_plans(Question(job=job, batches=(16,), fixed={"offload": (0,)}, most={})).best.step_s[0]
        )

    base = round_cluster(8)
    own, *_ = base.device.memory
    tight = replace(base, device=replace(base.device, memory=(replace(own, capacity_bytes=1.5e9),)))
    endless = replace(base, device=replace(base.device, memory=(replace(own, capacity_bytes=np.inf),)))
    steps = [best(with_tier(tight, 1.5e9, rate)) for rate in (1e8, 1e10, 1e11, 1e12)]
    gains = [best(tight) / step for step in steps]
    assert 1.0 <= gains[0] <= gains[1] <= gains[2] <= gains[3] <= best(tight) / best(endless) * (1 + 1e-9)
    assert gains[-1] > 1.02
