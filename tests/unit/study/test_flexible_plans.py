"""The comparison of flexible plans: cases, what is kept of them, and how they are told."""

from pathlib import Path

import pytest

from trainwright.cli.main import main
from trainwright.search.trial import Trial
from trainwright.study import flexible_plans
from trainwright.study.flexible_plans import (
    Case,
    Outcome,
    published_cases,
    run_cases,
    sensitivity_cases,
    setting_of,
)
from trainwright.study.flexible_table import COLUMNS, reasons, row_of


def trial(step_s: float, plan: str = "p") -> Trial:
    return Trial(
        plan=plan, step_s=step_s, total_bytes=2.0**30, capacity_bytes=2.0**35, fits=True,
        time_s={"matmul": step_s}, device_w=300.0, tokens_per_joule=1.0, row_bytes=(1.0,),
    )  # fmt: skip


def outcome(case: Case) -> Outcome:
    best = {
        "megatron-2022": trial(3.0), "deepspeed-2022": None, "alpa-2022": trial(4.0), "dap-2022": None,
        "knobs": trial(2.5),
    }  # fmt: skip
    return Outcome(case=case, best=best, flexible=trial(2.0, "mixed pp=2"), reason="1.50x: less idle time.")


def test_the_speedup_is_over_the_fastest_system() -> None:
    found = outcome(Case(family="swin", device="v100", count=8))
    assert found.rival is not None
    assert found.rival[0] == "megatron-2022"
    assert found.speedup == 1.5


def test_there_is_no_speedup_where_no_system_fits() -> None:
    case = Case(family="swin", device="v100", count=8)
    assert Outcome(case=case, best={"megatron-2022": None}, flexible=trial(1.0), reason="").speedup is None


def test_every_family_is_compared_at_its_published_sizes() -> None:
    cases = published_cases()
    assert len(cases) == 4 * 3 * 2
    assert {case.model for case in cases if case.family == "mbart"} == {
        "mbart-9.6b",
        "mbart-20b",
        "mbart-43b",
    }
    assert len({case.name for case in [*cases, *sensitivity_cases()]}) == len(cases) + len(
        sensitivity_cases()
    )


def test_a_case_may_have_other_memory_and_links_than_its_device() -> None:
    own = setting_of(Case(family="gpt3", device="v100", count=16)).cluster
    other = setting_of(Case(family="gpt3", device="v100", count=16, memory_gib=16, links=0.5)).cluster
    assert other.device.memory[0].capacity_bytes == 16 * 2.0**30
    assert other.network.levels[0].bytes_per_s == 0.5 * own.network.levels[0].bytes_per_s


def test_attention_is_fused_on_devices_that_have_such_kernels() -> None:
    assert setting_of(Case(family="gpt3", device="v100", count=8)).stack.attention == "unfused"
    assert setting_of(Case(family="gpt3", device="h100", count=8)).stack.attention == "flash"


def test_a_case_that_was_kept_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(family="swin", device="v100", count=8)
    monkeypatch.setattr(flexible_plans, "compare", outcome)
    first = list(run_cases([case], tmp_path))
    monkeypatch.delattr(flexible_plans, "compare")
    assert list(run_cases([case], tmp_path)) == first


def test_a_row_has_every_column() -> None:
    row = row_of(outcome(Case(family="swin", device="v100", count=8)))
    assert set(row) == set(COLUMNS)
    assert row["speedup_over_knobs"] == 1.25


def test_a_reason_names_model_cluster_and_plan() -> None:
    (line,) = reasons([outcome(Case(family="swin", device="v100", count=8, links=0.1))])
    assert line == "swin-5b on 8 v100, 0.1x links: mixed pp=2. 1.50x: less idle time."


def test_the_command_lists_the_studies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study"]) == 0
    assert capsys.readouterr().out.startswith("flexible-plans: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["study", "flexible-plan"], 'study "flexible-plan"'),
        (["study", "flexible-plans", "--model", "swim"], 'study model "swim"'),
        (["study", "flexible-plans", "--devices", "12"], "models are published for 4, 8, 16, 32"),
    ],
)
def test_a_study_that_cannot_be_run_says_why(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert said in capsys.readouterr().err


def test_the_command_shows_what_a_folder_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flexible_plans, "compare", outcome)
    arguments = ["study", "flexible-plans", "--model", "swin", "--device", "v100", "--devices", "8"]
    csv = tmp_path / "cases.csv"
    assert main([*arguments, "--out", str(tmp_path), "--csv", str(csv)]) == 0
    assert "1.50x" in capsys.readouterr().out
    assert csv.read_text(encoding="utf-8").splitlines()[0].startswith("model,device,count")
    assert (tmp_path / "swin-5b-v100-8.json").exists()
