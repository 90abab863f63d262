"""Steps of real processes, recorded."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.runtime.equality import SEQ, batch_of, plan_of  # noqa: E402
from tests.runtime.pool import Pool  # noqa: E402
from tests.runtime.small import build_small  # noqa: E402
from trainwright.cost.source import load_profile  # noqa: E402
from trainwright.program.lower import lower  # noqa: E402
from trainwright.program.reference import build_data  # noqa: E402
from trainwright.program.tabulate import tabulate  # noqa: E402
from trainwright.report.comparison import check_same, compare  # noqa: E402
from trainwright.report.saved_trace import load_trace  # noqa: E402
from trainwright.runtime.machine import build_setting  # noqa: E402
from trainwright.runtime.profile.known import known_profile  # noqa: E402
from trainwright.runtime.record import predicted_path, record_to  # noqa: E402
from trainwright.runtime.trainer import Recipe, build_trainer, initialize  # noqa: E402
from trainwright.runtime.whole import build_initial, build_kernels  # noqa: E402
from trainwright.runtime.worker import build_worker  # noqa: E402
from trainwright.simulate.breakdown import breakdown  # noqa: E402


def record_step(rank: int, text: str, path: str, cost: str | None = None) -> tuple[float, list[str]]:
    """Record one step of a small GPT; its loss, and the labels that a prediction of it has."""
    os.environ["XDG_CACHE_HOME"] = str(Path(path).parents[1])  # of all tests here: profiled once
    graph = build_small("gpt")
    plan = plan_of(text, graph, 2)
    program = lower(build_setting(graph, 2, SEQ, "fp32"), plan)
    worker = build_worker(program, rank, build_kernels(graph), torch.device("cpu"))
    trainer = build_trainer(worker, Recipe())
    initialize(worker, build_initial(graph))
    batch = batch_of(build_data(graph, program.instances, plan.batch, SEQ, plan.microbatches, 0))
    outcome = record_to(Path(path), trainer, batch, cost)
    assert worker.observer is None
    worker.groups.close()
    return outcome.loss, list(tabulate(program).labels)


@pytest.mark.parametrize("text", ["dp2 zero3", "tp2 sp", "pp2 1f1b", "zb-h1 pp=2", "offload"])
def test_a_recorded_step_has_the_tasks_of_its_prediction(
    pool: Callable[[int], Pool], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "trace.json"
    (loss, labels), (other, _) = pool(2).run(record_step, text, str(path))
    assert loss == pytest.approx(other)
    saved, predicted = load_trace(path), load_trace(predicted_path(path))
    check_same(predicted, saved)
    assert compare(predicted.timeline, saved.timeline).step.predicted_s > 0.0
    timeline, table = saved.timeline, saved.timeline.table
    assert saved.about["kind"] == "measured"
    assert table.places == ((0,), (1,))
    assert set(table.labels) <= set(labels)
    assert {"matmul", "attention", "streaming", "optimizer"} <= set(table.causes)
    assert (timeline.start_s >= 0.0).all()
    assert (timeline.end_s >= timeline.start_s).all()
    assert timeline.step_s == pytest.approx(timeline.end_s.max())
    parts = breakdown(timeline).time_s
    assert sum(float(each.sum()) for each in parts.values()) == pytest.approx(2 * timeline.step_s)


@pytest.mark.parametrize(
    ("cost", "words"), [("projected", "Operator times: projected from"), ("roofline", "a bound")]
)
def test_the_prediction_rests_on_the_source_that_is_asked_for(
    pool: Callable[[int], Pool], tmp_path: Path, cost: str, words: str
) -> None:
    path = tmp_path / "trace.json"
    pool(2).run(record_step, "dp2", str(path), cost)
    predicted = load_trace(predicted_path(path))
    assert words in predicted.about["cost"]
    check_same(predicted, load_trace(path))


def profile_twice(rank: int, cache: str) -> tuple[str, bool]:
    """The profile as written, and whether the second time it was read from the cache."""
    os.environ["XDG_CACHE_HOME"] = cache
    first = known_profile().read_text()
    return first, known_profile().read_text() == first


def test_a_profile_is_measured_once_and_the_same_for_all_processes(
    pool: Callable[[int], Pool], tmp_path: Path
) -> None:
    (one, kept), (two, _) = pool(2).run(profile_twice, str(tmp_path))
    assert one == two
    assert kept
    (written,) = (tmp_path / "trainwright").iterdir()
    profile, cluster = load_profile(written)
    assert cluster.device.peak("fp32") > 1e8
    assert {each.kind for each in profile.collectives} >= {"all_reduce", "all_gather", "send"}
