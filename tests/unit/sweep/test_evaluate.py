"""Rows say what the other commands say of the same cluster and strategy."""

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.sweep.small import changed, small_sweep
from trainwright.cost.load import Interval
from trainwright.estimate.fleet import at
from trainwright.estimate.step import estimate
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.report.summary import Terms, summarize
from trainwright.search.find import find_plans, fits, score, space_of
from trainwright.search.rank import Candidates, best
from trainwright.search.space import legal_strategies
from trainwright.sweep.evaluate import Evaluator, Rows
from trainwright.sweep.load import parse_sweep
from trainwright.sweep.points import points
from trainwright.sweep.ready import build_ready
from trainwright.sweep.types import Sweep


def rows_of(sweep: Sweep) -> Rows:
    """All rows of a sweep of one structure."""
    (rows,) = Evaluator(sweep).rows(0, len(sweep))
    return rows


@pytest.mark.parametrize("objective", ["time", "cost", "energy", "memory"])
def test_the_best_of_every_strategy_is_the_best_of_each_cluster_alone(objective: str) -> None:
    sweep = small_sweep(f'objective = "{objective}"\n')
    rows, ready = rows_of(sweep), build_ready(sweep, {})
    job = ready.job(points(sweep))
    strategies = legal_strategies(space_of(ready.question, 16))
    for row in range(len(sweep)):
        alone = at(job, np.int64(row))
        result = estimate(alone, strategies)
        scores = score(ready.question, alone, result)
        every = Candidates(
            strategies=strategies, global_batch=np.full(len(strategies), 16), score=scores, least=scores,
            step_s=result.step_s, total_bytes=result.total_bytes,
        )  # fmt: skip
        able = every.take(fits(alone, result, ready.question.filled_share))
        assert rows.columns["evaluated"][row] == len(strategies)
        assert rows.columns["fitting"][row] == len(able)
        assert rows.missing[row] == (len(able) == 0)
        if len(able):
            first = best(able, 1)
            assert rows.columns["strategy"][row] == str(first.strategies[0])
            assert rows.columns["step_s"][row] == first.step_s[0]


def test_a_search_by_plan_finds_what_plan_finds() -> None:
    sweep = parse_sweep(
        changed('search = "every"', 'search = "plan"').text.replace("factor = 2", "count = 1")
    )
    rows, ready = rows_of(sweep), build_ready(sweep, {})
    job = ready.job(points(sweep))
    for row in range(len(sweep)):
        found = find_plans(replace(ready.question, job=at(job, np.int64(row))))
        assert rows.missing[row] == (len(found.best) == 0)
        if len(found.best):
            assert rows.columns["strategy"][row] == str(found.best.strategies[0])
            assert rows.columns["step_s"][row] == pytest.approx(float(found.best.step_s[0]), rel=1e-12)


def test_columns_are_the_numbers_of_a_summary() -> None:
    sweep = small_sweep('electricity = "0.1 $/kWh"\n')
    rows, ready = rows_of(sweep), build_ready(sweep, {})
    job = ready.job(points(sweep))
    row = int(np.flatnonzero(~rows.missing)[-1])
    terms = Terms(
        interval=Interval(low=0.5, high=2.0), tokens=1e12,
        dollars_per_device_hour=job.cluster.device.price_per_hour, dollars_per_kwh=0.1,
    )  # fmt: skip
    strategy = parse_strategy(str(rows.columns["strategy"][row]))
    (summary,) = summarize(at(job, np.int64(row)), stack_strategies([strategy]), terms)
    told = {name: each[row] for name, each in rows.columns.items()}
    names = ("step_s", "tokens_per_s", "tokens_per_s_per_device", "mfu", "hfu", "host_bytes", "power_w",
             "joules_per_token", "exposed_fraction", "global_batch", "devices")  # fmt: skip
    for name in names:
        assert told[name] == pytest.approx(getattr(summary, name), rel=1e-12), name
    assert told["memory_bytes"] == pytest.approx(summary.total_bytes)
    assert told["dollars_per_million_tokens"] == pytest.approx(summary.budget.dollars_per_million_tokens)
    for part, value in summary.time_s.items():
        assert told[f"time_{part}_s"] == pytest.approx(value, abs=1e-15)
    parts = ("compute_s", "exposed_communication_s", "bubble_s", "time_offload_s", "time_optimizer_s",
             "time_overhead_s")  # fmt: skip
    assert sum(told[name] for name in parts) == pytest.approx(told["step_s"])


def test_recomputed_flops_are_in_hfu_as_in_a_summary() -> None:
    sweep = changed('schedule = "1f1b"', 'schedule = "1f1b"\nrecompute = "full"\nrecompute_layers = 4')
    rows, ready = rows_of(sweep), build_ready(sweep, {})
    row = int(np.flatnonzero(~rows.missing)[0])
    strategy = parse_strategy(str(rows.columns["strategy"][row]))
    assert strategy.recompute_layers == 4
    terms = Terms(interval=Interval(low=0.5, high=2.0), tokens=1e12, dollars_per_device_hour=1.0)
    job = at(ready.job(points(sweep)), np.int64(row))
    (summary,) = summarize(job, stack_strategies([strategy]), terms)
    assert rows.columns["hfu"][row] == pytest.approx(summary.hfu, rel=1e-12)


def test_a_constraint_on_results_chooses_among_strategies_that_meet_it() -> None:
    free = rows_of(small_sweep())
    bound = rows_of(small_sweep('where = ["memory_bytes < 40e9 and tp <= 4"]\n'))
    assert (bound.columns["memory_bytes"][~bound.missing] < 40e9).all()
    assert (bound.columns["tp"][~bound.missing] <= 4).all()
    both = ~bound.missing & ~free.missing
    assert both.any()
    assert (bound.columns["step_s"][both] >= free.columns["step_s"][both]).all()
    power = rows_of(small_sweep('where = "power_w < 1"\n'))
    assert power.missing.all()
    assert "no strategy that fits meets" in power.columns["why"][-1]


def test_a_constraint_may_compare_results_with_axes_and_name_choices() -> None:
    text = "where = [\"memory_bytes < 0.5 * capacity and recompute != 'none'\"]\n"
    rows = rows_of(small_sweep(text))
    found = ~rows.missing
    assert found.any()
    assert (rows.columns["memory_bytes"] < 0.5 * rows.columns["capacity"])[found].all()
    assert (rows.columns["recompute"][found] > 0).all()


def test_what_does_not_fit_says_how_much_is_missing() -> None:
    sweep = changed('"20 GB", "80 GB", "160 GB"', '"1 GB"')
    rows = rows_of(sweep)
    assert rows.missing.all()
    assert rows.columns["why"][0].startswith("nothing fits: at least ")
    # 953.7 MiB nominal, of which an H100 reports 79.11 / 80
    assert rows.columns["why"][0].partition(", of which ")[0].endswith("which has 943.1 MiB")


def test_structure_and_figures_can_be_axes_together() -> None:
    more = '[[axis]]\nfield = "cluster.count"\nvalues = [8, 12, 16]\n'
    more += '[[axis]]\nfield = "model.layers"\nratio = [1, 2]\n'
    sweep = parse_sweep(small_sweep().text + more)
    assert len(sweep) == 18 * 6
    found = list(Evaluator(sweep).rows(0, len(sweep)))
    assert len(found) == 6  # structures
    number = np.concatenate([each.columns["point"] for each in found])
    assert sorted(number.tolist()) == list(range(len(sweep)))
    twelve = [each for each in found if each.columns["count"][0] == 12]
    assert all("no strategy satisfies the constraints" in each.columns["why"][0] or not each.missing.all()
               for each in twelve)  # fmt: skip


def test_an_axis_of_whole_clusters_takes_parts_of_each() -> None:
    text = small_sweep().text.split("[[axis]]")[0]
    text += '[[axis]]\nfield = "compute"\nratio = [1, 2]\n'
    text += '[[axis]]\nfield = "cluster"\nname = "where"\nvalues = ["a100:8", "h100:8"]\n'
    columns = [each.columns for each in Evaluator(parse_sweep(text)).rows(0, 4)]
    by = {(str(c["where"][i]), float(c["compute"][i])): float(c["mfu"][i] / c["tokens_per_s"][i])
          for c in columns for i in range(len(c["point"]))}  # fmt: skip
    # The peak is what a token's share of MFU stands for: twice the compute, half of it.
    assert by["a100:8", 1.0] == pytest.approx(2 * by["a100:8", 2.0])
    assert by["a100:8", 1.0] / by["h100:8", 1.0] == pytest.approx(989 / 312, rel=0.01)


def test_expanded_memory_is_swept_like_any_field() -> None:
    text = small_sweep().text.split("[[axis]]")[0].replace('cluster = "h100:8"\n', "")
    text += '[cluster]\ncount = 8\n[cluster.device]\nbase = "h100"\n[[cluster.device.memory]]\nname = "cxl"\n'
    text += 'capacity = "1 TB"\nbandwidth = "1 TB/s"\naccess = "direct"\n'
    text += '[[axis]]\nfield = "cluster.memory.hbm.capacity"\nname = "own"\nvalues = ["10 GB", "80 GB"]\n'
    text += (
        '[[axis]]\nfield = "cluster.memory.cxl.bandwidth"\nname = "rate"\nvalues = ["50 GB/s", "1 TB/s"]\n'
    )
    columns = rows_of(parse_sweep(text)).columns
    slow, fast, roomy, _ = columns["step_s"]
    assert slow > fast > roomy > 0
    assert columns["time_tiers_s"][0] > columns["time_tiers_s"][1] > 0 == columns["time_tiers_s"][2]


def test_all_rows_hold_every_strategy_of_every_point() -> None:
    sweep = replace(small_sweep(), rows="all")
    evaluator, size = Evaluator(sweep), 0
    for rows in evaluator.rows(0, len(sweep)):
        assert rows.texts is not None
        size = len(rows.texts)
        assert len(rows) == size * len(sweep)
        best_rows = rows_of(small_sweep())
        steps = np.where(rows.columns["feasible"], rows.columns["step_s"], np.inf).reshape(len(sweep), size)
        expected = np.where(best_rows.missing, np.inf, best_rows.columns["step_s"])
        assert steps.min(axis=1) == pytest.approx(expected, rel=1e-9)
    assert size > 50


def test_a_batch_in_tokens_is_one_that_divides() -> None:
    text = small_sweep().text.split("[[axis]]")[0].replace("batch = 16\n", "")
    text += '[[axis]]\nfield = "batch_tokens"\nname = "asked"\nvalues = ["4M", 500000]\n'
    text += '[[axis]]\nfield = "batch_tolerance"\nname = "within"\nvalues = ["3%", "0%"]\n'
    found = list(Evaluator(parse_sweep(text)).rows(0, 4))
    columns = {
        name: np.concatenate([each.columns[name] for each in found])
        for name in ("asked", "within", "global_batch")
    }
    rows = list(zip(*(each.tolist() for each in columns.values()), strict=True))
    # 4 x 2^20 / 2,048 = 2,048; 500,000 / 2,048 = 244.1, and 240 = 2^4 x 15 is the roundest within 3 %
    assert rows == [(2**22, 0.03, 2048), (2**22, 0.0, 2048), (500_000, 0.03, 240), (500_000, 0.0, 244)]


@pytest.mark.parametrize("search", ["plan", "every"])
def test_strategies_are_chosen_within_the_oom_risk(search: str) -> None:
    text = small_sweep().text.split("[[axis]]")[0].replace('search = "every"', f'search = "{search}"')
    text += '[[axis]]\nfield = "oom_risk"\nvalues = ["0.1%", "50%"]\n'
    sweep = parse_sweep(text)
    careful, bold = (build_ready(sweep, {"oom_risk": row}).question for row in range(2))
    assert careful.filled_share < bold.filled_share
    rows = list(Evaluator(sweep).rows(0, 2))
    own, other = (each.columns["memory_bytes"][0] for each in rows)
    assert own <= careful.filled_share * careful.job.cluster.capacity_bytes
    assert other <= bold.filled_share * bold.job.cluster.capacity_bytes
    assert rows[0].columns["step_s"][0] >= rows[1].columns["step_s"][0]
    if search == "every":  # a search by plan stops counting where no better one can come
        assert rows[0].columns["fitting"][0] < rows[1].columns["fitting"][0]


def test_a_batch_in_tokens_that_no_strategy_divides_says_so() -> None:
    text = (
        small_sweep()
        .text.replace("batch = 16\n", "batch_tokens = 10240\n")
        .replace("cp = 1", "cp = 1\ndp = 8")
    )
    rows = rows_of(parse_sweep(text))
    assert rows.missing.all()
    assert "no batch of 5 to 5 sequences is legal on 8 devices" in rows.columns["why"][0]
