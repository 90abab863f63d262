"""Where a recommender's tables lie: closed form beside simulation, and instances beside each other."""

from dataclasses import replace

import numpy as np
import pytest

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import HybridModel, MemoryTier
from trainwright.cost.load import load_constants
from trainwright.errors import BadInput
from trainwright.estimate.step import estimate
from trainwright.estimate.tables import estimate_tables
from trainwright.estimate.types import Job
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.sharding import Sharding, stack_shardings
from trainwright.plan.strategy import Strategy, stack_strategies
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.program.setting import Setting
from trainwright.search.space import Space, legal_strategies
from trainwright.search.tables import best_instance, lay_instances, lay_tables, legal_shardings
from trainwright.simulate.whole import simulate_plan


def job(model: str, cluster: str, samples: int = 512) -> Job:
    constants, found = load_constants(), load_cluster(cluster)
    return Job(
        graph=build_graph(load_model(model)), cluster=found, stack=constants.stack("torchrec"),
        efficiency=constants.efficiency(found.device), seq=1, global_batch=samples * found.count,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "cluster", "sharding", "within"),
    [
        # 26 tables: some devices have four. In steps of a millisecond few bytes are gathered rather than
        # exchanged, once lowered, as that starts sooner.
        ("dlrm-mlperf", "h100:8", Sharding(tables=8), 0.07),
        ("dlrm-mlperf", "h100:16", Sharding(rows=16), 0.01),
        ("dlrm-mlperf", "h100:16", Sharding(tables=4, columns=4), 0.06),
        ("dlrm-1.2t", "a100:64", Sharding(columns=64), 0.01),
        ("dlrm-1.2t", "a100:64", Sharding(tables=16, rows=4), 0.03),
        ("dlrm-12t", "tpu-v4:16", Sharding(rows=4, columns=4), 0.03),
    ],
)
def test_closed_form_and_simulation_agree(
    model: str, cluster: str, sharding: Sharding, within: float
) -> None:
    asked = job(model, cluster)
    closed = estimate_tables(asked, stack_shardings([sharding]))
    name, degrees = parse_zoo(str(sharding))
    plan = build_zoo(name, asked.graph, sharding.devices, int(asked.global_batch), **degrees)
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency, seq=1
    )
    simulated = simulate_plan(setting, plan)
    assert closed.step_s[0] == pytest.approx(simulated.step_s, rel=within)
    held = max(need.total_bytes for need in simulated.needs)
    assert closed.total_bytes[0] == pytest.approx(held, rel=0.01)
    assert sum(closed.time_s.values())[0] == pytest.approx(closed.step_s[0])  # type: ignore[index]


@pytest.mark.parametrize(("rate", "hybrid"), [(100e9, "serial"), (500e9, "concurrent")])
def test_both_agree_where_tables_lie_in_expanded_memory(rate: float, hybrid: HybridModel) -> None:
    asked = expanded(job("dlrm-12t", "h100:64"), 480e9, rate, hybrid)
    closed = estimate_tables(asked, stack_shardings([Sharding(rows=64)]))
    plan = build_zoo("table-parallel", asked.graph, 64, int(asked.global_batch), tables=1, rows=64)
    setting = Setting(
        graph=asked.graph, cluster=asked.cluster, stack=asked.stack, efficiency=asked.efficiency, seq=1
    )
    simulated = simulate_plan(setting, plan)
    assert simulated.fits
    assert closed.feasible[0]
    assert closed.step_s[0] == pytest.approx(simulated.step_s, rel=0.02)
    assert closed.tiers_s[0] > 0.0


def test_lookups_far_away_take_their_bytes_over_that_bandwidth() -> None:
    near = job("dlrm-12t", "h100:64")
    far = expanded(near, 480e9, 100e9, "serial")
    shardings = stack_shardings([Sharding(rows=64)])
    before, after = (estimate_tables(each, shardings) for each in (near, far))
    assert not before.feasible[0]
    moved = after.tier_bytes["expanded", "traffic"][0]
    own = near.cluster.device.memory[0].bytes_per_s
    more = moved / near.efficiency.memory * (1 / 100e9 - 1 / own)
    assert after.step_s[0] - before.step_s[0] == pytest.approx(more, rel=0.02)


def test_expansion_lets_instances_be_smaller() -> None:
    asked = job("dlrm-1.2t", "a100:64")
    more = expanded(asked, 640e9, 500e9, "serial")
    assert min(each.devices for each in lay_instances(more, 512, "fp32")) == 8


def expanded(asked: Job, size: float, rate: float, hybrid: HybridModel) -> Job:
    device = asked.cluster.device
    tier = MemoryTier(name="expanded", capacity_bytes=size, bytes_per_s=rate, access="direct")
    changed = replace(device, memory=(device.memory[0], tier))
    return replace(asked, cluster=replace(asked.cluster, device=changed, hybrid=hybrid))


def test_every_sharding_uses_all_devices_and_cuts_no_more_than_there_is() -> None:
    found = legal_shardings(job("dlrm-mlperf", "h100:64"), 64, "bf16")
    assert (found.devices == 64).all()
    assert found.tables.max() <= 26
    assert (128 // found.columns).min() >= 4


def test_strategies_of_layers_are_refused_for_a_recommender() -> None:
    asked = job("dlrm-mlperf", "h100:8")
    with pytest.raises(BadInput, match=r"has tables and no layers.*table-parallel"):
        estimate(asked, stack_strategies([Strategy(dp=8)]))
    space = Space(graph=asked.graph, devices=8, seq=1, global_batch=4096, fixed={}, most={})
    with pytest.raises(BadInput, match="has tables and no layers"):
        legal_strategies(space)


def test_more_samples_a_step_give_more_samples_a_second() -> None:
    few, many = (lay_tables(job("dlrm-1.2t", "a100:64"), 64, each, "bf16") for each in (256, 1024))
    assert many.samples_per_s > few.samples_per_s


def test_a_model_that_needs_few_devices_gives_most_in_many_instances() -> None:
    laid = lay_instances(job("dlrm-mlperf", "h100:64"), 512, "bf16")
    best = best_instance(laid)
    assert best is not None
    # Samples a device are fixed, so that an instance loses only by what it exchanges.
    assert (best.devices, best.instances) == (1, 64)
    assert [each.devices for each in laid] == [1, 2, 4, 8, 16, 32, 64]


def test_an_instance_too_small_for_the_tables_is_left_out() -> None:
    laid = lay_instances(job("dlrm-1.2t", "h200:64"), 512, "fp32")
    assert [each.devices for each in laid] == [64]  # 4.8 TB in fp32
    laid = lay_instances(job("dlrm-1.2t", "h200:64"), 512, "bf16")
    assert [each.devices for each in laid] == [32, 64]


def test_slower_memory_makes_lookups_slower() -> None:
    asked = job("dlrm-12t", "h100:512")
    device = asked.cluster.device
    slow = replace(device.memory[0], bytes_per_s=device.memory[0].bytes_per_s / 4)
    slower = replace(asked, cluster=replace(asked.cluster, device=replace(device, memory=(slow,))))
    shardings = stack_shardings([Sharding(tables=16, rows=32)])
    fast, late = (estimate_tables(each, shardings).time_s["streaming"] for each in (asked, slower))
    assert np.all(late > 2.5 * fast)
