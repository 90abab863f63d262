"""Parallelization and cluster chosen together, as COMET (arXiv 2211.16648) has it."""

import json
import os
import re
from dataclasses import replace
from math import isinf
from pathlib import Path

import pytest

from tests.commands import fails
from trainwright.api.study import design_findings
from trainwright.api.study_requests import ClusterDesignStudyRequest
from trainwright.cli.study_shown import show_study
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput
from trainwright.estimate.step import estimate
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.report.figures import render_picture
from trainwright.study.cluster_design import Asked, Study, run_study
from trainwright.study.cluster_design_figures import (
    is_monotone,
    is_u_shaped,
    smallest_fitting,
    spread,
    study_figures,
)
from trainwright.study.design_clusters import FREE, METHOD, TABLES, front, load_rivals
from trainwright.study.design_maps import expansion_grid
from trainwright.study.design_tables import instance_rows
from trainwright.study.design_value import buy_next, layers_speed
from trainwright.study.mp_dp import (
    best_mp,
    best_time,
    build_job,
    footprint_rows,
    layers_graph,
    sweep_mp,
    with_expansion,
    with_memory,
)

# Of the paper: GB of state for each device, ZeRO-0 to 3.
FOOTPRINT = {
    256: (62.9, 27.5, 21.6, 15.7), 128: (125.8, 43.3, 29.5, 15.7), 64: (251.7, 74.7, 45.2, 15.7),
    32: (503.3, 137.6, 76.7, 15.7), 16: (1007, 263.5, 139.6, 15.7), 8: (2013, 515.1, 265.4, 15.7),
    4: (4027, 1018, 517.1, 15.7),
}  # fmt: skip
BATCH = 256


@pytest.fixture(scope="module")
def graph() -> Graph:
    return layers_graph(build_graph(load_model("transformer-1t")))


@pytest.fixture(scope="module")
def base() -> Cluster:
    return load_rivals(("a100-pods",), 1024)[0]


@pytest.fixture(scope="module")
def study() -> Study:
    clusters = ("a100-pods", "h100@dgx-h100", "gb200@gb200-nvl72", "tpu-v4", "dojo-d1")
    return run_study(Asked(clusters=clusters))


def test_layers_have_12_l_h_squared_parameters(graph: Graph) -> None:
    assert parameters(graph) == 12 * 128 * 25600**2


def test_footprints_are_those_of_the_paper_to_three_digits(graph: Graph, base: Cluster) -> None:
    for row in footprint_rows(graph, base, tuple(FOOTPRINT)):
        for zero, published in enumerate(FOOTPRINT[int(str(row["mp"]))]):
            last_digit = 1.0 if published >= 1000 else 0.1
            assert row[f"zero{zero}_gb"] == pytest.approx(published, abs=0.5 * last_digit)


def test_mp64_dp16_is_the_smallest_that_fits_80_gb(graph: Graph, base: Cluster) -> None:
    points = sweep_mp(build_job(graph, with_memory(base, 80e9), BATCH))
    assert smallest_fitting(points) == 64
    assert next(each.dp for each in points if each.mp == 64) == 16


@pytest.mark.parametrize("gigabytes", [300, 400, 1000])
@pytest.mark.parametrize("batch", [256, 512, 1024])
def test_with_300_gb_or_more_a_degree_of_at_most_16_wins(
    graph: Graph, base: Cluster, gigabytes: int, batch: int
) -> None:
    _, mp = best_time(build_job(graph, with_memory(base, gigabytes * 1e9), batch))
    assert 0 < mp <= 16


def test_the_sweep_is_u_shaped(graph: Graph, base: Cluster) -> None:
    assert is_u_shaped(sweep_mp(build_job(graph, with_memory(base, 1e16), BATCH)))


def test_parts_of_a_point_add_up_and_are_those_of_the_estimate(graph: Graph, base: Cluster) -> None:
    job = build_job(graph, base, BATCH)
    point = best_mp(sweep_mp(job))
    assert point is not None
    parts = (
        point.fp_compute_s, point.ig_compute_s, point.wg_compute_s, point.again_s, point.fp_exposed_s,
        point.ig_exposed_s, point.wg_exposed_s, point.optimizer_s, point.tiers_s,
    )  # fmt: skip
    assert sum(parts) == pytest.approx(point.step_s, rel=0.01)
    again = estimate(job, stack_strategies([parse_strategy(point.strategy)]))
    assert float(again.step_s[0]) == point.step_s


def test_expansion_gains_more_with_bandwidth_and_never_more_than_the_bound(
    graph: Graph, base: Cluster
) -> None:
    grid = expansion_grid(graph, base, BATCH)
    assert is_monotone(grid)
    bound = max(grid.speedup[-1])
    assert isinf(grid.y[-1])
    assert all(1.0 - 1e-9 <= each <= bound + 1e-9 for row in grid.speedup for each in row)
    assert 1.5 <= bound <= 1.8  # as published


def test_an_expansion_that_is_not_needed_changes_nothing(graph: Graph, base: Cluster) -> None:
    roomy = with_memory(base, 1e15)
    plain, mp = best_time(build_job(graph, roomy, BATCH))
    assert best_time(build_job(graph, with_expansion(roomy, 480e9, 10e9), BATCH)) == (plain, mp)


def test_clusters_differ_by_the_order_of_the_published_7_7(study: Study) -> None:
    assert 7.7 / 3 < spread(study.of(FREE)) < 7.7 * 3
    assert 7.7 / 3 < spread(study.of(METHOD)) < 7.7 * 3


def test_a_cluster_too_small_is_told_not_to_fit(study: Study) -> None:
    missing = {each.cluster for each in study.rivals if not each.fits and each.space == FREE}
    assert missing == {"dojo-d1"}


def test_any_strategy_is_at_least_as_fast_as_the_methods(study: Study) -> None:
    free = {each.cluster: each.step_s for each in study.of(FREE)}
    assert all(free[each.cluster] <= each.step_s * (1 + 1e-9) for each in study.of(METHOD))


def test_nothing_on_the_front_is_beaten_by_anything_else(study: Study) -> None:
    assert front(study.front) == list(study.front)
    fastest = study.of(FREE)[0]
    assert any(each.samples_per_s >= fastest.samples_per_s for each in study.front)


def test_every_resource_is_worth_something_between_nothing_and_its_share(graph: Graph, base: Cluster) -> None:
    values = {each.resource: each for each in buy_next(layers_speed(graph, BATCH), base)}
    assert all(-1e-9 <= each.elasticity <= 1.01 for each in values.values())
    assert values["inter-pod bandwidth"].elasticity > values["intra-pod bandwidth"].elasticity
    assert values["inter-pod bandwidth"].dollars_per_percent is not None
    assert "expanded bandwidth" not in values


def test_expansion_lets_a_recommender_run_on_fewer_devices() -> None:
    recommender = build_graph(load_model("dlrm-1.2t"))
    cluster = replace(load_rivals(("a100-pods",), 64)[0], count=64)
    rows = instance_rows(recommender, cluster)
    plain = [each.devices for each in rows if not each.expanded_gb]
    assert min(plain) == 64
    assert 8 <= min(each.devices for each in rows if each.expanded_gb) <= 16


def test_faster_expansion_never_slows_a_recommender() -> None:
    recommender = build_graph(load_model("dlrm-1.2t"))
    every = instance_rows(recommender, load_rivals(("a100-pods",), 64)[0])
    rows = [each for each in every if each.expanded_gb]
    for devices in {each.devices for each in rows}:
        rates = [each.samples_per_s for each in rows if each.devices == devices]
        assert rates == sorted(rates)


def test_the_recommender_is_compared_on_every_cluster(study: Study) -> None:
    assert {each.cluster for each in study.of(TABLES)} >= {"a100-pods", "h100@dgx-h100", "gb200@gb200-nvl72"}


def test_figures_carry_claims_and_verdicts(study: Study) -> None:
    figures = {each.name: each for each in study_figures(study)}
    assert all(each.claim and each.finding for each in figures.values())
    assert all(each.series or each.grid for each in figures.values())  # nothing is drawn of neither
    for name in ("footprint", "mp_sweep", "memory", "map_expansion", "clusters_any_strategy"):
        assert figures[name].holds, figures[name].finding


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInput, match="is no power of two"):
        Asked(devices=1000)
    with pytest.raises(BadInput, match="has no tables"):
        run_study(Asked(recommender="llama3-8b"))


def test_all_of_it_is_written_and_told(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("THOROUGH"):
        monkeypatch.setattr("trainwright.report.figures.can_draw", lambda: False)
    findings = design_findings(ClusterDesignStudyRequest(), study)
    findings.save_folder(tmp_path / "design")
    show_study("cluster-design", study, findings.figures())
    told = capsys.readouterr().out
    assert "What to buy next" in told
    assert re.search(r"MP64 DP16 +251\.7 +74\.7 +45\.2 +15\.7", told)
    tables = json.loads((tmp_path / "design" / "study.json").read_text())["tables"]
    assert {"footprint", "mp_sweep", "map_expansion", "clusters", "front", "buy_next"} <= set(tables)
    assert "Claim" in (tmp_path / "design" / "index.html").read_text()
    assert (tmp_path / "design" / "map_network.csv").exists()


def test_a_grid_is_drawn_as_a_heat_map_with_its_claim(study: Study) -> None:
    pytest.importorskip("matplotlib")
    expansion = next(each for each in study_figures(study) if each.name == "map_expansion")
    assert expansion.claim
    assert expansion.holds
    assert expansion.grid
    assert expansion.grid.rows[-1] == "endless"
    assert render_picture(expansion).startswith(b"\x89PNG")


def test_unknown_clusters_are_told() -> None:
    assert "no such name" in fails("study", "cluster-design", "--clusters", "h1000")
