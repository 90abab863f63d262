"""Every option of the library is honoured as by the command, or refused by name."""

import argparse
import importlib.util
import inspect
import json
from pathlib import Path
from unittest.mock import patch

import pytest

import trainwright
import trainwright.library
from tests.option_modes import PLANS, SIMULATIONS
from tests.option_modes_tools import ADVICE, EXPORTS
from tests.options import CommandMode, every_option, without
from tests.unit.sweep.small import small_sweep
from trainwright.cli.command_parser import CommandParser, command_module, parse_command
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.library.options import options_of

MODES = (PLANS[0], SIMULATIONS[0], ADVICE[0], EXPORTS[0])
OF_TERMINALS = ("quiet", "width")
ANSWERING = {  # the function of the command line that answers a call, by command
    "plan": "planning.plan_answer", "simulate": "simulating.outcome_of", "advise": "advising.advised",
    "export": "exporting.text_of",
}  # fmt: skip
SMALL = {
    "plan": ("gpt2", "h100:2"), "simulate": ("gpt2", "h100:2", "dp2"), "advise": ("dp2", "h100:2"),
    "export": ("dp2", "megatron"),
}  # fmt: skip


class Reached(Exception):
    """The options with which the command line is reached."""


def stated(mode: CommandMode, flag: str) -> argparse.Namespace:
    """The options of a mode and one more, as the command line parses them."""
    sample = mode.samples[flag]
    words = without(mode.words[1:], flag, mode.actions[flag])
    return parse_command(mode.words[0], [*words, flag, *(() if sample is None else (sample,))], asked="")


def call(command: str, asked: argparse.Namespace) -> None:
    """The function of the library with the same options as keywords."""
    given = {name: getattr(asked, name) for name in asked.given}
    if command == "export":
        trainwright.export(" ".join(asked.plan), given.pop("to"), **given)
    elif command == "advise":
        trainwright.advise(asked.config, asked.cluster, **given)
    elif command == "plan":
        trainwright.plan(asked.model, asked.cluster, **given)
    else:
        trainwright.simulate(asked.model, asked.cluster, " ".join(asked.plan), **given)


@pytest.mark.parametrize(
    ("mode", "flag"), [pytest.param(*each, id=f"{each[0]}{each[1]}") for each in every_option(MODES)]
)
def test_every_option_of_a_command_is_a_keyword_that_reaches_it_or_is_refused(
    mode: CommandMode, flag: str
) -> None:
    def reach(options: argparse.Namespace, *_: object) -> None:
        raise Reached(options)

    command, asked, name = mode.words[0], stated(mode, flag), flag.lstrip("-").replace("-", "_")
    with patch(f"trainwright.library.{ANSWERING[command]}", reach):
        if name in OF_TERMINALS:
            with pytest.raises(BadInput, match=f"{name} .*is for a terminal"):
                call(command, asked)
            return
        with pytest.raises(Reached) as reached:
            call(command, asked)
    (options,) = reached.value.args
    for each in (options, asked):  # the library names a plan in one word
        each.plan = " ".join(getattr(each, "plan", ())).split()
    assert {**vars(options), "asked": ""} == vars(asked)


def test_traces_for_chakra_are_left_to_the_command() -> None:
    with pytest.raises(BadInput, match="call trainwright export --to chakra"):
        trainwright.export("dp2", "chakra")


def written_names() -> list[tuple[str, str]]:
    """The keywords that name a file or a directory, by function."""
    found = []
    for command in SMALL:
        parser = CommandParser(add_help=False)
        command_module(command).add_arguments(parser)
        named = [each for each in parser._actions if each.option_strings]
        found += [
            (command, each.dest) for each in named if each.metavar in ("FILE", "FILE.html", "DIR", "PATH")
        ]
    return found


@pytest.mark.parametrize(("command", "name"), written_names())
def test_every_keyword_that_names_a_file_writes_it(command: str, name: str, tmp_path: Path) -> None:
    if name == "figures":
        pytest.importorskip("matplotlib")
    path = tmp_path / ("plans" if name in ("save_plans", "figures") else f"written.{name}")
    options: dict[str, object] = {"batch": 8} if command != "export" else {}
    if name == "save_plans":
        options |= {"algorithm": "diloco", "islands": 2}
    if command == "advise":
        options["model"] = "gpt2"
    function = getattr(trainwright, command)
    function(*SMALL[command], **{name: path}, **options)
    files = [path] if path.is_file() else list(path.rglob("*"))
    assert files
    assert all(each.stat().st_size for each in files)


@pytest.mark.parametrize("name", ["batch", "seq"])
def test_zero_is_refused_and_not_replaced_by_what_the_plan_has(name: str) -> None:
    best = trainwright.plan("gpt2", "h100:2", batch=8, top=1).best
    with pytest.raises(BadInput, match=f"--{name}"):
        trainwright.simulate("gpt2", "h100:2", best, **{name: 0})
    with pytest.raises(BadInput, match=f"--{name}"):
        trainwright.export(best, "megatron", **{name: 0})


class TestSweep:
    """`trainwright.sweep`, which has parameters of its own."""

    def test_every_parameter_reaches_the_sweep(self, tmp_path: Path) -> None:
        parameters = inspect.signature(trainwright.library.sweep).parameters
        assert [*parameters] == ["what", "out", "workers", "ray", "progress"]
        with patch("trainwright.library.sweeping.run_sweep") as run:
            swept = small_sweep()
            trainwright.sweep(swept, tmp_path, workers=3, ray="local", progress=print)
        run.assert_called_once_with(swept, tmp_path, workers=3, ray="local", progress=print)

    @pytest.mark.parametrize(("workers", "ray"), [(-1, ""), (2, "local")])
    def test_workers_that_cannot_be_had_are_refused(self, workers: int, ray: str, tmp_path: Path) -> None:
        with pytest.raises(BadInput, match="--workers"):
            trainwright.sweep(small_sweep(), tmp_path / "made", workers=workers, ray=ray)
        assert not (tmp_path / "made").exists()


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


@pytest.mark.parametrize(("name", "unit"), [("max_days", "days"), ("max_dollars", r"\$")])
def test_a_limit_that_nothing_meets_is_an_error(name: str, unit: str) -> None:
    with pytest.raises(InfeasiblePlan, match=f"no count trains .* within 1 {unit}"):
        trainwright.plan("gpt2", "h100:2", tokens="100T", **{name: 1})


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
