"""The library answers as the command line does, loads late, and its examples run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainwright
from tests.commands import trainwright as command
from trainwright.errors import BadInput, InfeasiblePlan

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = (
    "plan_and_export.py", "what_to_change.py", "where_the_time_goes.py", "compare_clusters.py",
    "sweep_a_design.py",
)  # fmt: skip
FRAMES = pytest.importorskip("polars", reason="needs a dataframe library")


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, trainwright; assert callable(trainwright.plan); "
        "assert not {'numpy', 'torch', 'rich'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=500)


def test_packages_are_functions_whatever_was_imported_before() -> None:
    import trainwright.plan.strategy
    import trainwright.simulate.whole

    assert callable(trainwright.plan)
    assert callable(trainwright.simulate)
    assert trainwright.plan.strategy.parse_strategy("dp2").dp == 2


def test_plans_are_those_of_the_command_line() -> None:
    plans = trainwright.plan("gpt2-xl", "h100:8", batch=64, top=3, fix={"pp": 1}, max_tp=2)
    told = command(
        "plan", "gpt2-xl", "h100:8", "--batch", "64", "--top", "3", "--fix", "pp=1", "--max-tp", "2", "--json"
    )
    tree = json.loads(told.stdout)
    assert [str(each.strategy) for each in plans] == [each["strategy"]["text"] for each in tree["plans"]]
    assert plans.best.step_s == tree["plans"][0]["step_s"]
    assert len(plans.to_dataframe()) == len(plans) == 3
    assert str(plans.strategy) in plans._repr_html_()
    assert [len(each) for each in plans.variants] == [each["variants"] for each in tree["plans"]]


def test_a_winner_is_simulated_and_exported_as_it_is() -> None:
    plans = trainwright.plan("gpt2-xl", "h100:8", batch=64, top=1)
    step = trainwright.simulate("gpt2-xl", "h100:8", plans.best)
    assert step.account.plan == str(plans.strategy)
    assert step.account.global_batch == 64
    assert step.step_s == pytest.approx(plans.best.step_s, rel=0.05)
    assert set(step.to_dataframe().columns) >= {"task", "cause", "start_s", "end_s"}
    assert step._repr_html_().startswith("<table>")
    assert "--global-batch-size 64" in trainwright.export(plans, "megatron", lenient=True).text


def test_errors_are_exceptions_of_ours() -> None:
    with pytest.raises(BadInput, match="batchh"):
        trainwright.plan("gpt2-xl", "h100:8", batchh=3)
    with pytest.raises(BadInput, match="cannot express plan"):
        trainwright.export("dp2 pp2 zb", "megatron")
    with pytest.raises(InfeasiblePlan):
        trainwright.plan("gpt3-175b", "h100:1", batch=1)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = trainwright.nothing


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_runs(script: str, tmp_path: Path) -> None:
    if script == "sweep_a_design.py":
        pytest.importorskip("duckdb")
        pytest.importorskip("pyarrow")
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], capture_output=True, text=True, timeout=500, check=False,
        env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent / "src"), "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip()
