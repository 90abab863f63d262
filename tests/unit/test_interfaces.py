"""The interfaces stand beside each other on `api`: signatures, types, documents, and who imports whom."""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import trainwright
from tests.test_architecture import MODULES, TREES, imported_modules, imported_names, package_of
from trainwright import library
from trainwright.api.plan_request import PlanRequest
from trainwright.errors import InfeasiblePlan

ROOT = Path(__file__).parents[2]
FUNCTIONS = [name for name in trainwright.__all__ if inspect.isfunction(getattr(trainwright, name))]


@pytest.mark.parametrize("package", ["api", "library", "web"])
def test_nothing_below_the_command_line_imports_it(package: str) -> None:
    for module in [each for each in MODULES if package_of(each) == package]:
        assert not [each for each in imported_modules(module) if package_of(each) == "cli"], module


def test_only_the_command_line_parses_arguments() -> None:
    parsing = {module for module in MODULES if "argparse" in set(imported_names(module))}
    scripts = {module for module in parsing if "__main__" in ast.dump(TREES[module])}  # of maintainers
    assert {package_of(module) for module in parsing - scripts} == {"cli"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_plain_and_says_what_it_does(name: str) -> None:
    function = getattr(trainwright, name)
    assert function is getattr(library, name)
    assert (function.__doc__ or "").strip().endswith((".", "`"))
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
    assert not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values())


def test_the_signature_is_that_of_the_request() -> None:
    stated = [*inspect.signature(trainwright.plan).parameters]
    assert stated[:2] == ["model", "cluster"]
    assert sorted(stated) == sorted(each.name for each in fields(PlanRequest))


def test_names_can_be_completed_before_they_are_used() -> None:
    code = "import trainwright; print(*dir(trainwright)); help(trainwright.plan)"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True
    )
    listed, _, described = shown.stdout.partition("\n")
    assert {*FUNCTIONS, "BadInput", "InfeasiblePlan"} <= set(listed.split())
    assert "Any" not in listed.split()
    assert described.startswith("Help on function plan in module trainwright.library")
    assert "max_tp" in described


def test_a_type_checker_rejects_a_keyword_that_does_not_exist(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "asks.py").write_text(
        "import trainwright\n"
        'trainwright.plan("gpt2", "h100:8", batchh=3)\n'
        'trainwright.plan("gpt2", "h100:8", batch=[3])\n'
        'reveal_type(trainwright.simulate("gpt2", "h100:8", "dp8").step_s)\n'
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache"), "asks.py"]
    checked = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
    ).stdout  # fmt: skip
    assert 'asks.py:2: error: Unexpected keyword argument "batchh"' in checked
    assert 'asks.py:3: error: Argument "batch" to "plan" has incompatible type "list[int]"' in checked
    assert 'asks.py:4: note: Revealed type is "float"' in checked.replace("builtins.", "")


def test_every_line_of_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("polars")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "library.md", "exec"), names)
    assert (tmp_path / "plan.html").stat().st_size


def test_every_function_is_in_the_document() -> None:
    text = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    assert not [name for name in FUNCTIONS if f"`{name}(" not in text]


def test_an_infeasible_plan_has_its_nearest_miss_as_data() -> None:
    with pytest.raises(InfeasiblePlan, match="8 devices would fit") as missed:
        trainwright.plan("llama2-70b", "a100:4", batch=8)
    error = missed.value
    assert (error.devices_needed, str(error.nearest) in str(error)) == (8, True)
    assert error.needed_bytes is not None
    assert error.capacity_bytes is not None
    assert error.needed_bytes > error.capacity_bytes
