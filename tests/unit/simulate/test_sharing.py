"""Devices that share cores are slower while many of them compute."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tables import PROFILE
from trainwright.cluster.load import load_cluster
from trainwright.cost.load import load_constants
from trainwright.cost.source import build_source
from trainwright.estimate.step import estimate
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.program.setting import Setting
from trainwright.simulate.sharing import share_cores
from trainwright.simulate.whole import Simulated, simulate_plan

ARCH = Architecture(name="small", layers=4, hidden=256, heads=8, vocab=4096, positions=256, norm="layer")


def simulated(path: Path, strategy: str, at_once: int, cost: str | None = None) -> Simulated:
    path.write_text(PROFILE.replace("at_once = 2", f"at_once = {at_once}"))
    cluster = load_cluster(str(path))
    source = build_source(cost, str(path), cluster, load_constants(), None)
    assert source is not None
    graph = build_graph(ARCH)
    setting = Setting(
        graph=graph,
        cluster=cluster,
        stack=source.stack,
        efficiency=source.efficiency,
        seq=256,
        precision="fp32",
    )
    return simulate_plan(setting, expand(parse_strategy(strategy + " fp32"), graph, 8))


def test_equal_work_on_half_as_many_cores_takes_twice_as_long(tmp_path: Path) -> None:
    one, two = (simulated(tmp_path / "p.toml", "dp4 mb2", cores).breakdown.time_s for cores in (4, 2))
    assert two["matmul"].max() == pytest.approx(2.0 * one["matmul"].max())


def test_a_pipeline_that_leaves_devices_idle_is_slowed_less(tmp_path: Path) -> None:
    alone, shared = (simulated(tmp_path / "p.toml", "pp4 mb1 1f1b", cores).step_s for cores in (4, 2))
    assert 1.05 * alone < shared < 1.95 * alone


def test_enough_cores_change_nothing(tmp_path: Path) -> None:
    timeline = simulated(tmp_path / "p.toml", "pp4 mb1 1f1b", 4).timeline
    assert share_cores(timeline, 4) is timeline
    assert share_cores(timeline, 0) is timeline


@pytest.mark.parametrize("cost", [None, "roofline"])
def test_the_closed_form_is_slowed_alike_where_all_compute(tmp_path: Path, cost: str | None) -> None:
    played = simulated(tmp_path / "p.toml", "dp4 mb2", 2, cost)
    closed = estimate(job_of(played.program.setting), stack_strategies([parse_strategy("dp4 mb2 fp32")]))
    assert closed.step_s[0] == pytest.approx(played.step_s, rel=0.15)


def test_a_pipeline_pays_for_the_bytes_that_it_sends(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    job = job_of(simulated(path, "pp4 mb1 1f1b", 4).program.setting)
    path.write_text(PROFILE.replace('bytes = 1048576, time = "600 us"', 'bytes = 1048576, time = "60 ms"'))
    source = build_source(None, str(path), job.cluster, load_constants(), None)
    assert source is not None
    piped = stack_strategies([parse_strategy("pp4 mb1 1f1b fp32")])
    slow = replace(job, efficiency=source.efficiency)
    assert estimate(slow, piped).step_s[0] > 1.2 * estimate(job, piped).step_s[0]


def job_of(setting: Setting) -> Job:
    return Job(
        graph=setting.graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency,
        seq=256, global_batch=8,
    )  # fmt: skip
