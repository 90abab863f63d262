"""Options that contradict each other, or the plan, are errors that name the option."""

import json
from pathlib import Path

import pytest

from trainwright.cli.main import main

SWEEP = Path(__file__).parents[3] / "examples" / "sweep_a_design.toml"
PLAN = ("plan", "gpt2", "h100:4", "--batch", "64")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*PLAN, "--fix", "tp=2", "--fix", "tp=4"), '--fix "tp=4": fixes tp a second time'),
        ((*PLAN, "--fix", "mb=1", "--fix", "micro_batch=2"), "fixes micro_batch a second time"),
        ((*PLAN, "--precision", "fp8", "--fix", "precision=bf16"), "also fixed by --fix precision"),
        (
            ("advise", "dp4", "h100:4", "--model", "gpt2", "--set", "TP=2", "--set", "TP=4"),
            '--set "TP=4": sets TP a second time',
        ),
        (
            ("simulate", "gpt2", "h100:4", "dp4", "--json", "--width", "80"),
            '--width "80": is of the schedule drawn',
        ),
        (
            ("sweep", str(SWEEP), "--ray", "local", "--workers", "2"),
            "--workers 2: does not apply with --ray",
        ),
        ((*PLAN, "--json", "--quiet"), "--quiet: shortens the printed tables, which --json"),
        ((*PLAN, "--flexible", "--max-days", "9"), "--flexible: is for one cluster, and --max-days"),
        ((*PLAN, "--pareto", "--max-dollars", "9"), "--pareto: is for one cluster, and --max-dollars"),
        (
            ("simulate", "dlrm-mlperf", "a100:8", "table-parallel", "--seq", "64"),
            '--seq "64": does not apply to a recommender',
        ),
        (
            ("simulate", "dlrm-mlperf", "a100:8", "table-parallel", "--algorithm", "diloco"),
            '--algorithm "diloco": does not apply to a recommender',
        ),
        (
            ("export", "dp4 bf16", "--to", "megatron", "--cluster", "v100:4"),
            '--cluster v100:4: precision "bf16": v100-32gb has no rate for it',
        ),
        (
            ("export", "dp4", "--to", "maxtext", "--cluster", "v100:4"),
            '--cluster "v100:4": v100-32gb usually trains in fp16, and maxtext 0.2.4 has fp32, bf16, fp8',
        ),
        (
            ("export", "dp4", "--to", "megatron", "--cluster", "h100:2"),
            '--cluster "h100:2": has 2 devices, and the plan is for 4',
        ),
    ],
)
def test_a_contradiction_is_an_error(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 1
    out, err = capsys.readouterr()
    assert told in err
    assert not out


def test_an_algorithm_is_not_run_by_each_process_of_torchrun(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["run", "gpt2", "dp2", "--algorithm", "diloco"]) == 1
    assert '--algorithm "diloco": starts its workers itself' in capsys.readouterr().err


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("answer") / "answer.json"
    assert main([*PLAN, "--quiet", "--json", str(path)]) == 0
    return str(path)


def test_an_answer_exported_for_another_cluster_says_so(
    answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", answer, "--to", "megatron", "--cluster", "a100:4"]) == 0
    told = "Planned for h100-sxm-80gb:4@dgx-h100, exported for a100-80gb:4@dgx-a100"
    assert told in capsys.readouterr().out


def test_an_answer_exported_for_its_own_cluster_says_nothing_of_it(
    answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", answer, "--to", "megatron", "--cluster", "h100:4"]) == 0
    assert "Planned for" not in capsys.readouterr().out


def test_an_answer_is_not_exported_for_a_cluster_that_cannot_run_it(
    answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", answer, "--to", "megatron", "--cluster", "v100:4"]) == 1
    assert "v100-32gb has no rate for it" in capsys.readouterr().err


def test_an_answer_for_several_sites_is_exported_for_their_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "answer.json"
    words = ("plan", "gpt2", "h100:2x2@10Gbps", "--batch", "64", "--fix", "dp=4", "--quiet")
    assert main([*words, "--json", str(path)]) == 0
    assert json.loads(path.read_text())["cluster"]["name"] == "h100:2x2@10Gbps"
    assert main(["export", str(path), "--to", "slurm"]) == 0
    assert "#SBATCH --nodes=2" in capsys.readouterr().out  # 4 devices, 2 at each site
