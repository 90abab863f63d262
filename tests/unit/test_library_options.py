"""Every option of the command line is a keyword of the library, with the same meaning."""

import importlib.util
import inspect
import json
from dataclasses import fields
from pathlib import Path
from runpy import run_path
from unittest.mock import patch

import pytest

import trainwright
import trainwright.library
from tests.commands import asked, parse_command
from tests.option_modes import PLANS, SIMULATIONS
from tests.option_modes_tools import ADVICE, EXPORTS
from tests.options import CommandMode, every_option, without
from tests.unit.sweep.small import small_sweep
from trainwright.api.fields import Request, command_words, pair_texts, value_text
from trainwright.api.low_communication import LowCommunicationPlans
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import AdviseRequest, ExportRequest, SimulateRequest
from trainwright.api.strategy_plans import StrategyPlans
from trainwright.cluster.load import load_cluster
from trainwright.errors import BadInput, InfeasiblePlan
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy

MODES = (PLANS[0], SIMULATIONS[0], ADVICE[0], EXPORTS[0])
REQUESTS: dict[str, type[Request]] = {
    "plan": PlanRequest, "simulate": SimulateRequest, "advise": AdviseRequest, "export": ExportRequest,
}  # fmt: skip
# Options that name files which a command writes, or say how it prints: a result has methods for them.
OF_COMMANDS = {
    "json", "csv", "report", "figures", "quiet", "width", "trace", "save_plan", "save_plans", "out",
}  # fmt: skip


def words(mode: CommandMode, flag: str) -> list[str]:
    """The words of a mode and one more option."""
    sample = mode.samples[flag]
    kept = without(mode.words[1:], flag, mode.actions[flag])
    return [*kept, flag, *(() if sample is None else (sample,))]


@pytest.mark.parametrize("command", REQUESTS)
def test_the_options_of_a_command_are_the_keywords_of_its_function(command: str) -> None:
    options = vars(parse_command(command, *next(m for m in MODES if m.words[0] == command).words[1:]))
    parameters = inspect.signature(getattr(trainwright, command)).parameters
    assert set(parameters) == set(options) - OF_COMMANDS - {"given", "asked"}
    assert list(parameters) == list(inspect.signature(REQUESTS[command]).parameters)


@pytest.mark.parametrize(
    ("mode", "flag"), [pytest.param(*each, id=f"{each[0]}{each[1]}") for each in every_option(MODES)]
)
def test_a_command_line_that_is_rendered_asks_the_same(mode: CommandMode, flag: str) -> None:
    command = mode.words[0]
    try:
        request = asked(REQUESTS[command], command, *words(mode, flag))
    except BadInput:  # two ways to state one thing
        return
    assert asked(REQUESTS[command], *command_words(command, request)) == request


def test_a_request_is_a_frozen_value() -> None:
    for request in REQUESTS.values():
        assert request.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert all("form" in each.metadata for each in fields(request))  # type: ignore[arg-type]


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
        with patch("trainwright.sweep.run.run_sweep") as run:
            swept = small_sweep()
            trainwright.sweep(swept, tmp_path, workers=3, ray="local", progress=print)
        run.assert_called_once_with(swept, tmp_path, workers=3, ray="local", progress=print)

    @pytest.mark.parametrize(("workers", "ray"), [(-1, None), (2, "local")])
    def test_workers_that_cannot_be_had_are_refused(
        self, workers: int, ray: str | None, tmp_path: Path
    ) -> None:
        with pytest.raises(BadInput, match="--workers"):
            trainwright.sweep(small_sweep(), tmp_path / "made", workers=workers, ray=ray)
        assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("batchsize", 3, "did you mean batch"), ("batch", [1, 2], "--batch"), ("pareto", "yes", "pareto"),
        ("batch", object(), "--batch"), ("batch", -1, "--batch"), ("tokens", float("nan"), "--tokens"),
        ("price", -1.0, "--price"), ("fix", {"pp": "many"}, "pp"), ("change", {"compute": 0}, "--change"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(name: str, value: object, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        trainwright.plan("gpt2", "h100:8", **{name: value})  # type: ignore[arg-type]


def test_values_are_text_or_numbers_alike() -> None:
    as_text = trainwright.plan(
        "gpt2", "h100:8", batch="512", price="2.5 $/h", restart="15 min", fix=["pp=1,2"], oom_risk="10%",
        tokens="1T", change=["memory=0.9"], top="2",
    )  # fmt: skip
    as_numbers = trainwright.plan(
        "gpt2", "h100:8", batch=512, price=2.5, restart=900, fix={"pp": [1, 2]}, oom_risk=0.1, tokens=1e12,
        change={"memory": 0.9}, top=2,
    )  # fmt: skip
    assert as_text.to_json() == as_numbers.to_json()


def test_pairs_and_ranges_are_rendered_as_users_type_them() -> None:
    assert pair_texts({"pp": [1, 2], "recompute": "full"}) == ("pp=1,2", "recompute=full")
    assert (value_text((8, 16), ".."), value_text(["diloco", "ist"]), value_text(5e6)) == (
        "8..16", "diloco,ist", "5000000",
    )  # fmt: skip


CONFIG = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
    "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 128,
}  # fmt: skip
CLUSTER = {"name": "mine", "count": 4, "device": {"base": "h100", "price_per_hour": "9 $/h"}}


def test_models_and_clusters_are_names_paths_dictionaries_or_objects(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    of_file = trainwright.plan(tmp_path / "config.json", "h100:4", batch=16, top=1).best
    of_mapping = trainwright.plan(CONFIG, "h100:4", batch=16, top=1).best
    assert of_file.step_s == of_mapping.step_s
    architecture, cluster = load_model("gpt2"), load_cluster("h100:4")
    named = trainwright.plan("gpt2", "h100:4", batch=16, top=1).best
    for model in (architecture, build_graph(architecture)):
        found = trainwright.plan(model, cluster, batch=16, seq=architecture.max_seq, top=1).best
        assert found == named
    dear = trainwright.plan("gpt2", CLUSTER, batch=16, top=1).best
    assert (dear.step_s, dear.budget.dollars > named.budget.dollars) == (named.step_s, True)


def test_a_traced_module_is_planned_and_simulated() -> None:
    torch = pytest.importorskip("torch")
    path = Path(__file__).parents[2] / "examples" / "gpt.py"
    traced = trainwright.trace(run_path(str(path))["build"](), (torch.zeros(2, 16, dtype=torch.long),))
    best = trainwright.plan(traced, "h100:4", seq=16, batch=16, top=1).best
    assert trainwright.simulate(traced.graph, "h100:4", best).step_s == pytest.approx(best.step_s, rel=0.05)


def test_a_graph_without_attention_is_refused() -> None:
    with pytest.raises(BadInput, match="is a graph without attention"):
        trainwright.plan(build_graph(load_model("dlrm-mlperf")), "h100:4", seq=1)


def test_a_graph_states_no_length() -> None:
    with pytest.raises(BadInput, match="states no sequence length; state seq"):
        trainwright.plan(build_graph(load_model("gpt2")), "h100:4")


@pytest.mark.parametrize(("model", "cluster"), [(object(), "h100:8"), ("gpt2", object())])
def test_what_is_no_model_or_cluster_is_refused(model: object, cluster: object) -> None:
    with pytest.raises(BadInput, match="is not a name, a path, a dictionary"):
        trainwright.plan(model, cluster)  # type: ignore[arg-type]


def test_a_plan_is_a_strategy_a_text_or_an_answer() -> None:
    plans = trainwright.plan("gpt2", "h100:2", batch=8, top=1, optimizer="muon")
    assert isinstance(plans, StrategyPlans)
    steps = [
        trainwright.simulate("gpt2", "h100:2", plan, batch=8, optimizer="muon").account
        for plan in (plans, plans.best, plans.strategy, str(plans.strategy))
    ]
    assert steps == [steps[0]] * 4
    own = trainwright.simulate("gpt2", "h100:2", plans)  # batch and optimizer of the answer
    assert own.account == steps[0]
    assert trainwright.export(plans, "megatron", lenient=True).text.count("--global-batch-size 8") == 1


def test_a_general_plan_is_simulated_as_it_is() -> None:
    step = trainwright.simulate("gpt2", "h100:2", parse_strategy("dp2 mb1"), batch=8)
    assert trainwright.simulate("gpt2", "h100:2", step.plan).step_s == step.step_s


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


def test_results_are_written_by_their_methods(tmp_path: Path) -> None:
    plans = trainwright.plan("gpt2", "h100:2", top=1)
    plans.save_json(tmp_path / "out.json")
    plans.save_csv(tmp_path / "out.csv")
    plans.save_report(tmp_path / "out.html")
    assert json.loads((tmp_path / "out.json").read_text())["plans"][0]["step_s"] == plans.best.step_s
    assert "trainwright plan gpt2 h100:2 --top 1" in (tmp_path / "out.html").read_text()
    assert (tmp_path / "out.csv").read_text().count("\n") == 2
    step = trainwright.simulate("gpt2", "h100:2", plans)
    step.save_plan(tmp_path / "best.plan")
    step.save_trace(tmp_path / "step.json")
    assert trainwright.simulate("gpt2", "h100:2", tmp_path / "best.plan").step_s == step.step_s
    low = trainwright.plan("gpt2", "h100:2", algorithm=["diloco"], islands=2, batch=8)
    assert isinstance(low, LowCommunicationPlans)
    low.save_plans(tmp_path / "plans")
    assert (tmp_path / "plans" / "diloco.plan").stat().st_size


def test_tracing_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "trainwright.library.find_spec", lambda name: None if name == "torch" else found(name)
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
