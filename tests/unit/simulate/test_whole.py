"""Plans simulated from end to end: what they need, whether they fit, what they are charged with."""

from typing import Any

import pytest

from tests.builders import free_stack, gpt, perfect, round_cluster, round_device
from trainwright.cluster.types import MemoryTier
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.model.graph import parameters
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import parse_strategy
from trainwright.program.setting import Setting
from trainwright.simulate.whole import Simulated, simulate_plan

GRAPH = gpt(layers=4)


def setting(capacity: float = 80e9, host: float = 1e12, **stack: Any) -> Setting:
    tiers = (
        MemoryTier(name="hbm", capacity_bytes=capacity, bytes_per_s=1e12),
        MemoryTier(name="host", capacity_bytes=host, bytes_per_s=10e9),
    )
    return Setting(
        graph=GRAPH, cluster=round_cluster(8, device=round_device(memory=tiers)), stack=free_stack(**stack),
        efficiency=perfect(), seq=1024,
    )  # fmt: skip


def simulated(text: str, batch: int = 8, **changes: Any) -> Simulated:
    return simulate_plan(setting(**changes), expand(parse_strategy(text), GRAPH, batch))


def test_a_place_needs_what_it_allocates_and_a_reserve() -> None:
    (need,) = simulated("dp1", batch=1, fragmentation=0.1, context_bytes=1e9).needs
    parts = dict(need.category_bytes)
    reserve, context = parts.pop("reserve"), parts["buffers"]
    assert context == 1e9
    assert reserve == pytest.approx(0.1 * (sum(parts.values()) - 1e9))  # the context has no fragments
    assert need.total_bytes == pytest.approx(sum(parts.values()) + reserve)
    assert parts["optimizer"] == pytest.approx(12 * parameters(GRAPH))


def test_stages_are_told_where_they_are() -> None:
    assert [(each.devices, each.stages) for each in simulated("dp4 pp2 1f1b").needs] == [
        ((0, 1, 2, 3), (0,)),
        ((4, 5, 6, 7), (1,)),
    ]


def test_what_does_not_fit_is_told_by_stage_device_and_remedy() -> None:
    needed = max(each.total_bytes for each in simulated("dp4 pp2 1f1b").needs)
    assert simulated("dp4 pp2 1f1b", capacity=1.01 * needed).fits
    small = simulated("dp4 pp2 1f1b", capacity=0.99 * needed)
    assert not small.fits
    words = r'plan "dp4 pp2 mb1 zero0 1f1b bf16": stage \d needs .* on device [04], which has .*; '
    with pytest.raises(InfeasiblePlan, match=words + "split it further or recompute its activations"):
        small.check()
    with pytest.raises(InfeasiblePlan, match="split it further or shard its state"):
        simulated("dp4 pp2 1f1b", capacity=0.1 * needed).check()


def test_a_plan_without_stages_is_told_as_a_whole() -> None:
    with pytest.raises(InfeasiblePlan, match=r"zero0 bf16\": it needs .* on device 0"):
        simulated("dp8", capacity=1e8).check()


def test_what_is_offloaded_must_fit_on_the_host() -> None:
    offloaded = simulated("dp1 offload-optimizer", batch=1)
    assert offloaded.needs[0].category_bytes["optimizer"] == 0
    assert offloaded.needs[0].host_bytes == pytest.approx(12 * parameters(GRAPH))
    assert offloaded.fits
    with pytest.raises(InfeasiblePlan, match=r"on the host of device 0, which has .*; offload less"):
        simulated("dp1 offload-optimizer", batch=1, host=1e8).check()


def test_activations_on_the_host_are_counted_between_their_copies() -> None:
    one, two = (simulated(f"dp1 mb{size} offload-activations", batch=4).needs[0] for size in (1, 2))
    assert two.host_bytes == pytest.approx(2 * one.host_bytes)


def test_what_is_done_again_is_a_cause_of_its_own() -> None:
    plain, again = simulated("dp1", batch=1).breakdown, simulated("dp1 full", batch=1).breakdown
    assert "recompute" not in plain.time_s
    assert again.time_s["matmul"] == pytest.approx(plain.time_s["matmul"])
    assert again.step_s == pytest.approx(plain.step_s + again.time_s["recompute"].sum())


def test_the_precision_is_that_of_the_plan() -> None:
    assert simulated("dp8 fp8").step_s < simulated("dp8 bf16").step_s


def test_more_tasks_than_can_be_held_are_told() -> None:
    with pytest.raises(BadInput, match="too many to simulate; use a smaller batch"):
        simulate_plan(setting(), Plan(microbatches=900_000_000))
