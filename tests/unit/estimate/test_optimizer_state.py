"""Optimizers in the closed form and in the simulation: the same bytes, and the same time of an update."""

from dataclasses import replace

import pytest

from tests.builders import gpt, perfect, round_cluster, round_device, round_job
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import MemoryTier
from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.load import load_constants
from trainwright.cost.state import HOST_UPDATE_BYTES_PER_S, host_update_bytes_per_s
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.graph import parameters
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.strategy import Strategy, parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.simulate.whole import simulate_plan

CASES = (
    ("llama3-8b", "h100:8", "dp4 tp2 mb1 zero1", "muon", ""),
    ("llama3-8b", "h100:8", "dp2 pp4 mb1 zero1 1f1b", "muon", "bf16"),
    ("llama3-8b", "h100:8", "dp8 mb1 zero1 offload-optimizer", "precision-aware-bf16", "bf16"),
    ("llama3-8b", "h100:8", "dp4 pp2 mb1 zero1 1f1b offload-optimizer", "muon", ""),
    ("llama3-8b", "b200:8", "dp4 tp2 mb1 zero1 fp8", "adamw", ""),
    ("llama3-8b", "b200:8", "dp8 mb1 zero1 fp4", "", "bf16"),
    ("qwen3-30b-a3b", "b200:8", "dp8 ep8 mb1 zero1 fp8", "precision-aware", ""),
)


@pytest.mark.parametrize(("model", "where", "text", "optimizer", "grad_dtype"), CASES)
def test_closed_form_and_simulation_agree(
    model: str, where: str, text: str, optimizer: str, grad_dtype: str
) -> None:
    constants, cluster = load_constants(), load_cluster(where)
    graph, strategy = build_graph(load_model(model)), parse_strategy(text)
    stack = with_optimizer(constants.stack("megatron-core"), optimizer, grad_dtype)
    efficiency = constants.efficiency(cluster.device)
    job = Job(
        graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048, global_batch=32
    )  # fmt: skip
    closed = estimate(job, stack_strategies([strategy]))
    setting = Setting(graph=graph, cluster=cluster, stack=stack, efficiency=efficiency, seq=2048)
    found = simulate_plan(setting, expand(strategy, graph, 32))
    most = max(found.needs, key=lambda need: need.total_bytes)
    for name in ("weights", "optimizer"):
        assert most.category_bytes.get(name, 0.0) == pytest.approx(closed.memory_bytes[name][0], rel=0.002), (
            name
        )
    few = 0.1 if strategy.ep > 1 else 0.03  # with four microbatches of experts the two differ more
    assert found.timeline.step_s == pytest.approx(closed.step_s[0], rel=few)


def _memory(optimizer: str, grad_dtype: str = "") -> dict[str, float]:
    graph = gpt(layers=2, tied=False)
    job = round_job(graph, round_cluster(8))
    job = replace(job, stack=with_optimizer(job.stack, optimizer, grad_dtype))
    result = estimate(job, stack_strategies([Strategy(dp=8, zero=1)]))
    return {name: float(each[0]) / parameters(graph) for name, each in result.memory_bytes.items()}


def test_state_is_counted_by_parameter() -> None:
    plain, narrow = _memory(""), _memory("precision-aware-bf16", "bf16")
    assert plain["optimizer"] == pytest.approx(12 / 8)  # sharded over 8 ranks
    assert plain["gradients"] == pytest.approx(4)
    assert narrow["optimizer"] == pytest.approx(6 / 8)
    assert narrow["gradients"] == pytest.approx(2)


def test_muon_has_two_moments_at_the_ends_and_one_in_layers() -> None:
    graph = gpt(layers=2, tied=False)
    ends = sum(parameters(replace(graph, segments=(each,))) for each in graph.segments if each.count == 1)
    share = ends / parameters(graph)
    assert 0.1 < share < 0.9
    assert _memory("muon")["optimizer"] == pytest.approx((8 + 4 * share) / 8, rel=1e-6)


def _host(bandwidth: float, update: float = 0.0) -> MemoryTier:
    return MemoryTier(name="host", capacity_bytes=1e12, bytes_per_s=bandwidth, update_bytes_per_s=update)


@pytest.mark.parametrize(
    ("tier", "rate"),
    [
        (_host(64e9), HOST_UPDATE_BYTES_PER_S),  # the link is faster than the memory behind it
        (_host(4e9), 4e9),
        (_host(450e9, 220e9), 220e9),  # as the catalog states it
    ],
)
def test_a_host_updates_at_the_rate_of_its_memory(tier: MemoryTier, rate: float) -> None:
    device = round_device()
    cluster = round_cluster(8, device=replace(device, memory=(device.memory[0], tier)))
    assert float(host_update_bytes_per_s(cluster, perfect())) == rate


def test_an_offloaded_update_takes_what_the_hosts_memory_takes() -> None:
    """34 bytes a parameter at 37 GB/s, and 6 of them over the link, on each of 8 ranks."""
    graph, found = build_graph(load_model("llama3-8b")), load_cluster("h100:8")
    constants = load_constants()
    efficiency = constants.efficiency(found.device)
    job = Job(
        graph=graph, cluster=found, stack=constants.stack("megatron-core"), efficiency=efficiency, seq=2048,
        global_batch=8,
    )  # fmt: skip
    step = [
        float(estimate(job, stack_strategies([parse_strategy(text)])).step_s[0])
        for text in ("dp8 mb1 zero1", "dp8 mb1 zero1 offload-optimizer")
    ]
    own = parameters(graph) / 8
    here = own * 34 / (3350e9 * efficiency.memory)
    there = own * 34 / 37e9 + own * 6 / (64e9 * efficiency.host_link)
    assert step[1] - step[0] == pytest.approx(there - here, rel=0.01)
