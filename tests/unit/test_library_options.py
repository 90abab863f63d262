"""Every option of the library is honoured as by the command, or refused by name."""

import importlib.util
import json
from pathlib import Path

import pytest

import trainwright
from trainwright.cli.command_parser import CommandParser, command_module
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.library.options import options_of

_WORDS = {
    "plan": ("gpt2", "h100:8"), "simulate": ("gpt2", "h100:8", "dp8"), "advise": ("dp8", "h100:8"),
    "export": ("dp8",), "sweep": ("sweep.toml",),
}  # fmt: skip


def keywords(command: str) -> list[tuple[str, str, bool]]:
    parser = CommandParser(add_help=False)
    command_module(command).add_arguments(parser)
    flags = [each for each in parser._actions if each.option_strings]
    return [
        (command, each.option_strings[-1].lstrip("-").replace("-", "_"), each.nargs == 0) for each in flags
    ]


@pytest.mark.parametrize(
    ("command", "name", "is_flag"), [each for command in _WORDS for each in keywords(command)]
)
def test_every_option_of_a_command_is_a_keyword_that_reaches_it_or_is_refused(
    command: str, name: str, is_flag: bool
) -> None:
    required: dict[str, object] = {"to": "slurm"} if command == "export" and name != "to" else {}
    values = {name: True if is_flag else "7", **required}
    if name in ("quiet", "width"):  # of terminals
        with pytest.raises(BadInput, match=f"{name} .*is for a terminal"):
            options_of(command, _WORDS[command], values)
        return
    options = options_of(command, _WORDS[command], values)
    assert name in options.given
    assert getattr(options, name) in (True, "7", ["7"])


def test_the_first_line_of_the_documents_is_accepted() -> None:
    asked = options_of("plan", ("llama3-70b", "h100:512"), {"fix": {"pp": [1, 2]}, "max_tp": 8})
    assert (asked.fix, asked.max_tp) == (["pp=1,2"], "8")


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("devices_range", (8, 16), "8..16"), ("batch_range", [4, 8], "4:8"),
        ("algorithm", ["diloco", "ist"], "diloco,ist"), ("report", Path("page.html"), "page.html"),
        ("batch", 512.0, "512"), ("max_dollars", 5e6, "5000000"), ("change", {"memory": 0.9}, ["memory=0.9"]),
        ("fix", ["pp=1", "tp=2"], ["pp=1", "tp=2"]), ("pareto", True, True),
    ],
)  # fmt: skip
def test_values_become_what_a_user_would_type(name: str, value: object, given: object) -> None:
    assert getattr(options_of("plan", ("gpt2", "h100:8"), {name: value}), name) == given


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("batchsize", 3, "did you mean batch"), ("batch", [1, 2], "takes one value"),
        ("report", True, "is no value"), ("json", True, "would print"), ("json", "-", "would print"),
        ("pareto", "yes", "neither True nor False"), ("batch", object(), "not text, a number or a path"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(name: str, value: object, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        options_of("plan", ("gpt2", "h100:8"), {name: value})


def test_a_model_that_is_no_name_is_refused() -> None:
    with pytest.raises(BadInput, match="takes names and files"):
        trainwright.plan(object(), "h100:8")  # type: ignore[call-overload]


def test_a_deadline_that_nothing_meets_is_an_error() -> None:
    with pytest.raises(InfeasiblePlan, match="no count trains"):
        trainwright.plan("gpt2", "h100:2", max_days=1, tokens="100T")


def test_limits_give_the_plans_of_the_smallest_cluster() -> None:
    plans = trainwright.plan("gpt2", "h100:8", max_days=100, devices_range=(2, 4), top=1)
    assert plans.sizing is not None
    assert plans.best.devices == 2
    assert plans.to_dict()["smallest"] == 2


def test_a_recommender_is_planned() -> None:
    plans = trainwright.plan("dlrm-mlperf", "a100:8", top=2)
    assert plans.best.plan.startswith("table-parallel")  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="--max-tp"):
        trainwright.plan("dlrm-mlperf", "a100:8", max_tp=2)


def test_files_are_written(tmp_path: Path) -> None:
    names = {name: tmp_path / f"out.{name}" for name in ("json", "csv", "report")}
    plans = trainwright.plan("gpt2", "h100:2", top=1, **names)
    assert json.loads(names["json"].read_text())["plans"][0]["step_s"] == plans.best.step_s
    assert all(each.stat().st_size for each in names.values())


def test_tracing_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "trainwright.library.tracing.find_spec", lambda name: None if name == "torch" else found(name)
    )
    with pytest.raises(BadInput, match=r"pip install 'trainwright\[run\]'"):
        trainwright.trace(None, None)


def test_a_sweep_without_pyarrow_says_what_to_install_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer = importlib.import_module

    def missing(name: str, *rest: str) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return importer(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    example = Path(__file__).parents[2] / "examples" / "sweep_a_design.toml"
    with pytest.raises(BadInput, match=r"pyarrow.*pip install 'trainwright\[sweep\]'"):
        trainwright.sweep(example, tmp_path / "made")
    assert not (tmp_path / "made").exists()
