"""`plan --algorithm`, and what takes its plans back."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainwright.cli.main import main

SITES = ("gpt2-xl", "h100:8x2@1Gbps", "--seq", "1024", "--batch", "64")
FASTER = ("gpt2-xl", "h100:8x2@10Gbps", "--seq", "1024", "--batch", "1024")  # two sites gain on one alone


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An answer with two algorithms as JSON and CSV, and a plan file of each."""
    path = tmp_path_factory.mktemp("islands")
    files = [
        "--json",
        str(path / "answer.json"),
        "--csv",
        str(path / "answer.csv"),
        "--save-plans",
        str(path),
    ]
    algorithms = "diloco,streaming-diloco every=100 delay=4,compressed by=rand-k"
    assert main(["plan", *SITES, "--algorithm", algorithms, "--quiet", *files]) == 0
    return path


def answer(folder: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return tree


def test_exact_training_and_algorithms_are_answered_together(folder: Path) -> None:
    tree = answer(folder)
    exact, (diloco, streaming, _) = tree["plans"][0], tree["algorithms"]
    assert (diloco["name"], streaming["name"]) == ("diloco", "streaming-diloco")
    assert diloco["step_s"] < 0.5 * exact["step_s"]  # 6.2 GB cross a link of 1 Gb/s in every exact step
    assert diloco["sent_bytes_per_step"] * diloco["every"] == pytest.approx(diloco["round_sent_bytes"])
    assert tree["exact_sent_bytes_per_step"] > 10 * diloco["sent_bytes_per_step"]
    assert diloco["step_s"] == pytest.approx(diloco["round_s"] / diloco["every"])
    assert diloco["budget"]["days"] < exact["budget"]["days"]
    assert diloco["total_bytes"] < diloco["capacity_bytes"]
    assert streaming["every"] == 100
    assert len(tree["advice"]) > 1


def test_bytes_of_exact_steps_are_counted_as_their_time_is(tmp_path: Path) -> None:
    path = tmp_path / "half.json"
    words = ["--algorithm", "local-sgd every=50 exact=1000", "--tokens", f"{2000 * 64 * 1024}"]
    assert main(["plan", *SITES, *words, "--quiet", "--json", str(path)]) == 0
    tree = json.loads(path.read_text())
    (found,) = tree["algorithms"]  # half of the 2,000 steps are exact
    apart = found["round_sent_bytes"] / 50
    expected = 0.5 * apart + 0.5 * tree["exact_sent_bytes_per_step"]
    assert found["sent_bytes_per_step"] == pytest.approx(expected)
    assert found["step_s"] == pytest.approx(0.5 * (found["round_s"] / 50 + tree["plans"][0]["step_s"]))


def test_exact_training_on_one_island_is_what_others_are_compared_with_where_links_are_slow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, own = tmp_path / "both.json", tmp_path / "own.json"
    words = ["gpt2-xl", "h100:8x2@1Gbps", "--seq", "1024", "--batch", "1024"]
    assert main(["plan", *words, "--algorithm", "compressed by=natural", "--json", str(path)]) == 0
    tree = json.loads(path.read_text())
    assert main(["plan", "gpt2-xl", "h100:8", *words[2:], "--quiet", "--json", str(own)]) == 0
    alone, site = tree["exact_on_one_island"], json.loads(own.read_text())["plans"][0]
    assert alone["step_s"] == site["step_s"]  # the other site is idle
    assert (
        alone["budget"]["days"] < tree["algorithms"][0]["budget"]["days"] < tree["plans"][0]["budget"]["days"]
    )
    first, second, *_ = tree["advice"]
    assert first.startswith("Advice: train exactly on 8 devices")
    assert second.startswith("Exact training takes")
    assert "exact, one island" in capsys.readouterr().out


def test_exact_steps_of_subnetworks_are_told_by_simulate_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SITES, "--algorithm", "ist every=10", "--tokens", f"{1000 * 64 * 1024}", "--quiet"]
    assert main(["plan", *words, "--save-plans", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["simulate", *SITES[:4], str(tmp_path / "ist.plan")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "184 steps of the run train the whole model exactly" in shown
    assert "times, days and costs here are without them" in shown


def test_the_measured_risk_is_never_hidden(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (risk, *_) = answer(folder)["algorithms"][0]["risks"]
    assert {"network", "workers", "excess_loss", "low", "high", "seeds", "source"} <= set(risk)
    main(["plan", *SITES, "--algorithm", "diloco every=50"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{risk['excess_loss']:+.1%} ({risk['low']:+.1%} to {risk['high']:+.1%})" in shown
    assert f"a small {risk['network']}, {risk['workers']} workers" in shown
    assert "they do not tell what a large model would lose" in shown
    rows = (folder / "answer.csv").read_text().splitlines()
    assert rows[0].endswith("network,workers,setting,excess_loss,low,high")
    assert rows[1].startswith("exact,")
    assert rows[2].startswith('"exact, one island",')
    assert any("transformer,4,diloco every=20" in row for row in rows)


def test_what_did_not_keep_up_in_the_study_is_named_and_not_advised(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    assert main(["plan", *FASTER, "--algorithm", "diloco", "--quiet", "--json", str(path)]) == 0
    first, *others = json.loads(path.read_text())["advice"]
    assert first.startswith("Advice: train exactly on")
    (warning,) = [each for each in others if each.startswith("Faster but not advised: diloco")]
    assert "its loss was measured at +" in warning or "steps were not measured" in warning


def test_what_kept_up_in_the_study_is_advised_with_its_risk_and_how_small_that_study_was(
    tmp_path: Path,
) -> None:
    path = tmp_path / "answer.json"
    algorithms = "compressed by=rand-k,compressed by=top-k,power-sgd,compressed by=qsgd levels=1"
    assert main(["plan", *FASTER, "--algorithm", algorithms, "--quiet", "--json", str(path)]) == 0
    tree = json.loads(path.read_text())
    rand, top, power, coarse = tree["algorithms"]
    assert [rand["name"], top["name"]] == ["compressed-rand-k", "compressed-top-k"]
    assert all("by=rand-k" in each["setting"] for each in rand["risks"])
    assert rand["sent_bytes_per_step"] == pytest.approx(0.1 * 4 * 1.5576e9, rel=1e-4)  # share=0.1, fp32
    assert top["step_s"] < rand["step_s"] < tree["plans"][0]["step_s"]
    assert "rank=200" in power["algorithm"]  # of a hidden size of 1,600: as large a share as 4 of 32
    advice, *others = tree["advice"]
    assert advice.startswith("Advice: compressed by=rand-k")
    assert "times as fast as exact training; its loss was measured at" in advice
    assert "on a small transformer in 130 steps" in advice
    assert any("compressed-top-k" in each and "its loss was measured at +" in each for each in others)
    assert coarse["budget"]["days"] < rand["budget"]["days"]
    assert any("levels=1 was not measured, but levels=7" in each for each in others)


@pytest.mark.parametrize("name", ["diloco", "streaming-diloco", "compressed-rand-k"])
def test_simulate_reads_back_what_plan_wrote(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = next(each for each in answer(folder)["algorithms"] if each["name"] == name)
    trees = []
    for plan in ([str(folder / f"{name}.plan")], [str(folder / "answer.json"), "--algorithm", name]):
        capsys.readouterr()
        assert main(["simulate", *SITES[:2], *plan, "--seq", "1024", "--json"]) == 0
        trees.append(json.loads(capsys.readouterr().out))
    assert trees[0]["step_s"] == trees[1]["step_s"]
    assert trees[0]["global_batch"] == 64
    assert trees[0]["devices"] == 16
    assert trees[0]["step_s"] == pytest.approx(closed["step_s"], rel=0.03)
    assert trees[0]["apart"]["round_sent_bytes"] == closed["round_sent_bytes"]
    parts = sum(each["busiest_s"] for each in trees[0]["time_s"].values())
    assert parts == pytest.approx(trees[0]["step_s"])


def test_a_strategy_of_an_island_is_simulated_on_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, trace = tmp_path / "ist.plan", tmp_path / "trace.json"
    words = ["dp8", "--algorithm", "ist every=5", "--save-plan", str(saved), "--trace", str(trace)]
    cluster = "h100:8x5@1Gbps"  # 25 heads: 5 for each island
    assert main(["simulate", "gpt2-xl", cluster, *words, "--seq", "1024", "--batch", "40"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "5 islands, ist every=5" in shown
    assert "s exposed sync" in shown
    assert "synchronise every 5 by ist" in saved.read_text()
    names = {event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"4 steps", "meeting after 5"} <= names


def test_a_plan_of_islands_is_exported_to_trainwright_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = str(folder / "diloco.plan")
    assert main(["export", plan, "--to", "trainwright", "--model", "gpt2-xl"]) == 0
    assert (folder / "diloco.plan").read_text() in capsys.readouterr().out
    for target in ("megatron", "torchrun", "slurm", "deepspeed"):
        assert main(["export", plan, "--to", target, "--model", "gpt2-xl"]) == 1
        assert f"for which {target} has no words; use --to trainwright" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["gpt2-xl", "h100:8", "--algorithm", "diloco"], "is one island"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "dilco"], 'did you mean "diloco"'),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "marina"], "takes most gradients twice"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "ddp"], "is exact training"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "compressed,compressed by=top-k"], "names one twice"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco", "--islands", "1"], "nobody to learn"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco", "--islands", "3"], "does not divide over 3"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco,diloco every=3"], "names one twice"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco every=0"], "no whole number of 1 or more"),
        (
            ["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco every=9999999"],
            "1,000,000 steps that a round",
        ),
        (["gpt2-xl", "h100:8x2@1Gbps", "--islands", "2"], "goes with --algorithm"),
        (["gpt2-xl", "h100:8x2@1Gbps", "--save-plans", "here"], "goes with --algorithm"),
        (["mixtral-8x7b", "h100:64x2@1Gbps", "--algorithm", "ist"], "leave out ist: diloco trains it"),
        (
            ["gpt2-xl", "h100:8x2@1Gbps", "--algorithm", "diloco", "--flexible"],
            "--flexible: goes with exact training",
        ),
        (["dlrm-mlperf", "h100:8x2@1Gbps", "--algorithm", "diloco"], "not for recommenders"),
    ],
)
def test_what_cannot_be_asked_is_told(
    words: list[str], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words, "--batch", "64"]) == 1
    assert match in capsys.readouterr().err


def test_an_algorithm_that_cannot_be_is_told_beside_those_that_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["gpt2-xl", "h100:8x32@1Gbps", "--seq", "1024", "--batch", "512", "--algorithm", "ist,local-sgd"]
    assert main(["plan", *words]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "32 islands of 8 devices" in shown
    assert "ist: workers or islands 32: are more than the 25 units" in shown


def test_a_plan_file_is_for_its_cluster_and_batch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(folder / "diloco.plan")
    assert main(["simulate", "gpt2-xl", "h100:8x4@1Gbps", plan, "--seq", "1024"]) == 1
    assert "2 islands of 8 devices, and the cluster has 32" in capsys.readouterr().err
    assert main(["simulate", *SITES[:2], plan, "--batch", "32"]) == 1
    assert "islands x batch x microbatches = 64" in capsys.readouterr().err
    assert main(["simulate", *SITES[:2], plan, "--seq", "1024", "--algorithm", "diloco every=5"]) == 1
    assert "plan file has its own" in capsys.readouterr().err
    assert main(["simulate", *SITES[:2], str(folder / "answer.json")]) == 1
    assert "name one of them with --algorithm" in capsys.readouterr().err
