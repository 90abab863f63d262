"""The study of subnetworks: its quick form, run whole, and what is claimed of it in a form that can fail."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.commands import LIMIT_S, heed_interrupts
from trainwright.algorithm.anatomy import Anatomy, Weight
from trainwright.algorithm.experiment import Curve, Experiment, Mark
from trainwright.algorithm.protocol import Seat
from trainwright.algorithm.registry import ALGORITHMS, parse_algorithm
from trainwright.algorithm.risk import parse_risks
from trainwright.study.algorithm_map import ALONE, build_map
from trainwright.study.intervals import interval
from trainwright.study.links import Link, steps_of
from trainwright.study.quadratic_cases import endings
from trainwright.study.rehearsals import Estimate, all_cores, begin_estimates, end_estimates, run_experiments
from trainwright.study.subnetworks import EXACT, FULL, METHODS, OURS, Result, Study, method_of
from trainwright.study.subnetworks_coupling import coupling_rows, ordered_pairs
from trainwright.study.subnetworks_tables import keeps_up, study_lines

pytestmark = pytest.mark.timeout(1200)  # the study trains for a minute on two idle cores
_COMMAND = [sys.executable, "-m", "trainwright.cli.main", "study", "subnetworks", "--quick"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the quick form, and what it told."""
    folder = tmp_path_factory.mktemp("subnetworks")
    done = subprocess.run(
        [*_COMMAND, "--out", str(folder), "--risk", str(folder / "risk.toml")],
        capture_output=True, text=True, check=False, timeout=1100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def row(folder: Path, network: str, workers: int, method: str) -> Mapping[str, float]:
    found = next(
        each
        for each in rows(folder, "results")
        if (each["network"], each["workers"], each["method"]) == (network, str(workers), method)
    )
    return {name: float(found[name]) for name in ("loss", "accuracy", "points", "sent_bytes", "seeds")}


@pytest.mark.parametrize("workers", [2, 4])
def test_subnetworks_are_within_a_point_of_exact_training_with_a_quarter_of_its_bytes(
    quick: tuple[Path, str], workers: int
) -> None:
    exact, ours = (row(quick[0], "mlp", workers, name) for name in (EXACT, OURS))
    assert exact["seeds"] == ours["seeds"] == 3
    assert exact["accuracy"] > 0.95  # there is something to lose
    assert ours["accuracy"] >= exact["accuracy"] - 0.01
    assert 4.0 * ours["sent_bytes"] <= exact["sent_bytes"]


def test_disjoint_subnetworks_without_a_finish_lose_and_the_study_says_so(
    quick: tuple[Path, str],
) -> None:
    folder, told = quick
    exact, apart = (row(folder, "mlp", 4, name) for name in (EXACT, "ist disjoint"))
    assert apart["accuracy"] < exact["accuracy"] - 0.03
    words = " ".join(told.split())
    assert "mlp, 4 workers: ist keeps up" in words
    exact, apart = (row(folder, "transformer", 4, name)["loss"] for name in (EXACT, OURS))
    said = "ist keeps up" if apart <= 1.01 * exact else "ist LOSES"
    assert f"transformer, 4 workers: {said}" in words


def test_coupling_stands_beside_the_loss_that_was_measured(quick: tuple[Path, str]) -> None:
    found = rows(quick[0], "coupling")
    assert {each["network"] for each in found} == {"mlp", "transformer"}
    for each in found:
        assert 0 < float(each["predicted_share_by_cut"]) < 1
        assert 0 < float(each["off_diagonal"]) < 1
        learned, nats = (float(each[name]) for name in ("learned", "measured_excess_loss"))
        if learned > 0:
            assert float(each["measured_share"]) == pytest.approx(nats / learned)
    digits = next(each for each in found if each["network"] == "mlp")
    assert float(digits["learned"]) == pytest.approx(2.3, abs=0.1)  # ten digits, all known: ln 10
    assert "foretold to lose" in " ".join(quick[1].split())


def test_tables_figures_and_risks_are_there(quick: tuple[Path, str]) -> None:
    folder = quick[0]
    for name in ("results", "quadratics", "coupling", "curves", "times"):
        assert rows(folder, name)
    assert json.loads((folder / "study.json").read_text())["lines"]
    assert "within a point" in (folder / "index.html").read_text()
    found = parse_risks((folder / "risk.toml").read_text())
    assert {each.algorithm for each in found} == {"ist", "local-sgd"}
    links = {each["link"] for each in rows(folder, "times")}
    assert links == {"100 Mb/s", "1 Gb/s", "10 Gb/s", "400 Gb/s"}


def test_work_that_is_interrupted_goes_on_from_what_is_kept(tmp_path: Path) -> None:
    tiny = [
        Experiment(network="mlp", algorithm="ddp", workers=2, steps=2, rate=1e-3, seed=seed)
        for seed in (0, 1)
    ]
    with all_cores() as pool:
        first = run_experiments(tiny, tmp_path, lambda _: None, pool)
    kept = sorted((tmp_path / "runs").iterdir())
    assert len(kept) == 2
    kept[0].write_text("{")  # damaged: run again
    stamp = kept[1].stat().st_mtime_ns
    with all_cores() as pool:
        assert run_experiments(tiny, tmp_path, lambda _: None, pool) == first
    assert kept[1].stat().st_mtime_ns == stamp
    assert json.loads(kept[0].read_text())["found"]


def test_an_interrupted_study_says_how_to_go_on(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*_COMMAND, "--out", str(tmp_path)], stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("2/"):
                break
        running.send_signal(signal.SIGINT)
        told = running.stderr.read()
        assert running.wait(LIMIT_S) == 130
    assert "continues from what" in told
    assert "Traceback" not in told
    assert list((tmp_path / "runs").iterdir())


def test_theory_is_what_simulation_finds_on_every_quadratic() -> None:
    found = endings(seed=1)
    assert all(each.agrees for each in found)
    at = {(each.case, each.method): each for each in found}
    assert len(at) == 5 * 7
    assert at["interpolation", "ist"].bias > 0.01  # though all f_i share their minimum
    assert at["interpolation", "perm-k"].simulated < 1e-3
    assert at["weakly coupled", "ist"].bias < at["homogeneous", "ist"].bias / 10
    assert at["b = 0", "ist"].simulated < 1e-3
    assert at["heterogeneous", "diana"].simulated < 1e-3 < at["heterogeneous", "perm-k"].simulated
    assert not replace(at["homogeneous", "ist"], theory=0.0).agrees


def test_all_algorithms_and_both_controls_are_in_the_full_study() -> None:
    assert {each.algorithm.split()[0] for each in METHODS} == set(ALGORITHMS)
    whole = [each for each in FULL if set(each.methods) == {method.name for method in METHODS}]
    assert {each.network for each in whole} == {"mlp", "transformer"}
    assert all(each.seeds >= 3 and len(each.rates) >= 2 for each in FULL)
    assert {"small", "ensemble"} <= {each.name for each in METHODS if each.kind != "whole"}


def result(points: float, sent: float) -> Result:
    setting = FULL[0]

    def curve(accuracy: float, sent_bytes: float) -> Curve:
        numbers = {"loss": 1.0, "accuracy": accuracy}
        mark = Mark(step=1, sent_bytes=sent_bytes, validation=numbers, test=numbers)
        asked = Experiment(network="mlp", algorithm="ddp", workers=2, steps=1, rate=1.0, seed=0)
        return Curve(experiment=asked, marks=(mark,))

    return Result(
        setting=setting, method=method_of(OURS), rate=1.0, curves=(curve(0.9 + points / 100, sent),),
        exact=(curve(0.9, 400.0),),
    )  # fmt: skip


def coupled(losses: Mapping[str, float], learned: float) -> Study:
    """One cut of a network, of which a tenth of what was learned is foretold to be lost."""

    def curve(loss: float) -> Curve:
        numbers = {"loss": loss, "accuracy": 0.5}
        mark = Mark(step=1, sent_bytes=1.0, validation=numbers, test=numbers)
        return Curve(experiment=asked, marks=(mark,))

    asked = Experiment(network="mlp", algorithm="ddp", workers=2, steps=1, rate=1.0, seed=0)
    results = [
        Result(
            setting=FULL[0], method=method_of(name), rate=1.0, curves=(curve(loss),),
            exact=(curve(losses[EXACT]),),
        )
        for name, loss in losses.items()
    ]  # fmt: skip
    estimate = Estimate(
        experiment=asked, algorithm="ist every=20", off_diagonal=0.5, share=0.1, learned=learned
    )
    return Study(endings=(), results=tuple(results), estimates=(estimate,))


def test_what_is_foretold_is_what_the_cut_and_meeting_rarely_cost() -> None:
    losses = {EXACT: 1.0, "local-sgd": 1.1, "ist disjoint": 1.5}
    (found,) = coupling_rows(coupled(losses, learned=2.0))
    # By the cut 0.1 * 2 = 0.2 nats, by meeting rarely 0.1: 15 % of 2. Measured 0.5: 25 %, by the cut 20 %.
    assert found["predicted_excess_loss"] == pytest.approx(0.3)
    assert found["predicted_share"] == pytest.approx(0.15)
    assert found["measured_share"] == pytest.approx(0.25)
    assert (found["predicted_share_by_cut"], found["measured_share_by_cut"]) == (0.1, pytest.approx(0.2))
    (found,) = coupling_rows(coupled({EXACT: 1.0, "ist disjoint": 1.5}, learned=2.0))  # without local SGD
    assert (found["predicted_share"], found["measured_share_by_cut"]) == (None, None)
    assert (found["predicted_share_by_cut"], found["measured_share"]) == (0.1, pytest.approx(0.25))
    (found,) = coupling_rows(coupled(losses, learned=0.0))
    assert (found["predicted_share"], found["measured_share"]) == (None, None)


def test_each_cut_has_a_verdict_that_can_be_wrong() -> None:
    losses = {EXACT: 1.0, OURS: 1.0, "local-sgd": 1.1, "ist disjoint": 1.5}
    for cut_loss, told in ((1.5, "measured 25%: hurts."), (1.1, "measured 5%: does not hurt.")):
        lines = study_lines(coupled(losses | {"ist disjoint": cut_loss}, learned=2.0))
        assert lines[-2] == (
            "mlp, 2 workers, ist every=20: foretold to lose 15% of what was learned (10% by the cut, the "
            f"rest as local SGD): hurts; {told}"
        )
        assert f"whether it hurts in {int(cut_loss > 1.2)} of 1 cuts" in lines[-1]
    assert "foretold to lose" not in " ".join(study_lines(coupled(losses, learned=0.0)))


def test_an_estimate_of_an_earlier_form_is_asked_for_again(tmp_path: Path) -> None:
    asked = (Experiment(network="mlp", algorithm="ddp", workers=2, steps=1, rate=1.0, seed=0), ("ist",))
    row = {"algorithm": "ist", "off_diagonal": 0.5, "share": 0.1, "learned": 2.0}

    class Pool:
        def submit(self, *what: object) -> Future[Any]:
            found: Future[Any] = Future()
            found.set_result([row])
            return found

    class Shut:
        def submit(self, *what: object) -> Future[Any]:
            raise AssertionError("it is kept")

    def estimates(pool: Any) -> list[Estimate]:
        return end_estimates(begin_estimates([asked], tmp_path, pool), tmp_path, lambda _: None)

    expected = [Estimate(experiment=asked[0], **row)]  # type: ignore[arg-type]
    assert estimates(Pool()) == expected
    (kept,) = (tmp_path / "runs").iterdir()
    kept.write_text(kept.read_text().replace('"learned"', '"relative"'))
    assert estimates(Pool()) == expected
    assert estimates(Shut()) == expected


def test_keeping_up_takes_both_accuracy_and_few_bytes() -> None:
    assert keeps_up(result(-0.9, 100.0))
    assert not keeps_up(result(-1.1, 100.0))
    assert not keeps_up(result(0.0, 101.0))


def test_the_interval_of_three_values_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])  # deviation 1: 4.303 / sqrt(3) = 2.484
    assert (found.mean, found.high) == (2.0, pytest.approx(4.484, abs=1e-3))
    assert interval([5.0]).low == 5.0


def test_an_order_that_is_foretold_counts_pairs() -> None:
    assert ordered_pairs([(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) == (2, 3)


def test_a_step_takes_its_compute_and_what_of_sending_is_not_hidden() -> None:
    anatomy = Anatomy(weights=(Weight(name="w", sizes=(100, 100)),))
    seat, link = Seat(rank=0, workers=2, steps=1), Link(name="", bytes_per_s=1e6, latency_s=1e-3)
    # 6 FLOPs a number and sample: 60,000 in 0.06 s at 1 MFLOP/s. 40,000 bytes at 1 MB/s and 2 hops: 0.042 s,
    # of which the backward pass hides 0.04 s. Compressed to a tenth with places: 8,000 bytes, 1 hop: 0.009 s.
    (exact,) = steps_of(parse_algorithm("ddp"), anatomy, seat, 1)
    assert exact.seconds(1e6, link) == pytest.approx(0.062)
    (top,) = steps_of(parse_algorithm("compressed by=top-k share=0.1"), anatomy, seat, 1)
    assert top.seconds(1e6, link) == pytest.approx(0.069)


def test_the_map_takes_the_fastest_that_may_be_taken() -> None:
    settings = {"ddp": "ddp", "diloco": "diloco every=20", "ist": "ist every=20"}
    places = build_map(settings, {"ddp": 0.0, "diloco": 0.05, "ist": 0.5}, "ddp")
    assert {place.choice[0.02] for place in places} == {"ddp", ALONE}
    at: Any = {(each.size, each.bandwidth): each for each in places if each.latency == "1 ms"}
    # A worker computes for a step of the others and three more; four of them send 6 of 4 bytes a weight.
    assert at["1B", "400 Gb/s"].step_s[ALONE] == pytest.approx(
        4 * at["1B", "400 Gb/s"].step_s["ddp"], rel=0.02
    )
    slow, faster = at["1B", "100 Mb/s"], at["1B", "10 Gb/s"]
    assert slow.choice[0.1] == ALONE  # also faster than meeting every 20 steps
    assert slow.speedup[0.1] == 1.0
    assert faster.choice[0.1] == "diloco"
    assert faster.speedup[0.1] == faster.step_s[ALONE] / faster.step_s["diloco"] > 1.5
    for place in places:
        assert place.speedup[0.1] >= 1.0
