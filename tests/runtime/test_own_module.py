"""Modules of users' own under `trainwright run`: the same numbers as a plain loop over them."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from tests.runtime import launching as launched
from tests.runtime import own_modules as own
from trainwright.cli.main import main

FILE = str(Path(own.__file__))
OPTIONS = ("--steps", str(own.STEPS), "--rate", str(own.RATE))


def run(*arguments: str) -> None:
    """A run that comes to its end and says nothing else."""
    result = launched.run(*arguments)
    assert (result.returncode, result.stderr) == (0, "")


def found_losses(metrics: Path) -> list[float]:
    return [loss for _, loss in launched.losses(metrics)]


@pytest.fixture(scope="module")
def plain() -> tuple[list[float], torch.nn.Module]:
    """The losses of the small GPT in a plain loop, and what it has learned."""
    module = own.build("gpt")
    return own.plain_losses("gpt", module), module


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what a run of the small GPT has left."""
    path = tmp_path_factory.mktemp("own")
    run(
        f"{FILE}:gpt", "dp2", *OPTIONS, "--metrics", str(path / "dp2.jsonl"), "--evaluate-every", "3",
        "--checkpoint", str(path / "kept"), "--every", "3", "--export", str(path / "end.safetensors"),
        "--record", str(path / "third.json"),
    )  # fmt: skip
    return path


def test_its_losses_are_those_of_a_plain_loop(
    finished: Path, plain: tuple[list[float], torch.nn.Module]
) -> None:
    assert found_losses(finished / "dp2.jsonl") == pytest.approx(plain[0], abs=1e-5)
    lines = [json.loads(line) for line in (finished / "dp2.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "evaluation_loss" in line] == [3, 6]
    assert {each["pid"] for each in json.loads((finished / "third.json").read_text())["traceEvents"]} >= {
        0,
        1,
    }


def test_what_it_has_learned_loads_back_into_the_module(
    finished: Path, plain: tuple[list[float], torch.nn.Module]
) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    module = own.build("gpt", seed=1)
    module.load_state_dict(safetensors.load_file(finished / "end.safetensors"))
    assert module.head.weight is module.tokens.weight  # tied, as it was
    rows = torch.from_numpy(own.samples().step(own.STEPS))
    with torch.no_grad():
        torch.testing.assert_close(module(rows), plain[1](rows), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("plan", ["pp2", "tp2 sp"])
def test_it_goes_on_under_another_plan_with_the_same_losses(
    tmp_path: Path, finished: Path, plain: tuple[list[float], torch.nn.Module], plan: str
) -> None:
    shutil.copytree(finished / "kept" / "step-00000003", tmp_path / "step-00000003")
    metrics = tmp_path / "on.jsonl"
    run(
        f"{FILE}:gpt", *plan.split(), *OPTIONS, "--metrics", str(metrics), "--checkpoint", str(tmp_path),
        "--resume",
    )  # fmt: skip
    assert found_losses(metrics) == pytest.approx(plain[0][3:], abs=1e-5)


def test_it_may_have_a_loss_and_buffers_of_its_own_and_begin_with_a_file(tmp_path: Path) -> None:
    module = own.build("masked", seed=5)
    torch.save(module.state_dict(), tmp_path / "start.pt")
    expected = own.plain_losses("masked", module)
    run(
        "tests.runtime.own_modules:masked", "tp2", *OPTIONS, "--metrics", str(tmp_path / "tp2.jsonl"),
        "--from", str(tmp_path / "start.pt"), "--export", str(tmp_path / "end.safetensors"),
    )  # fmt: skip
    assert found_losses(tmp_path / "tp2.jsonl") == pytest.approx(expected, abs=1e-5)
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    state = safetensors.load_file(tmp_path / "end.safetensors")
    assert state["version"] == 7
    assert torch.equal(state["mask"], module.mask)
    own.build("masked").load_state_dict(state)


@pytest.mark.parametrize("plan", ["dp2 mb2", "tp2 mb4"])
def test_operators_kept_whole_are_traced_for_the_samples_of_the_plan(tmp_path: Path, plan: str) -> None:
    expected = own.plain_losses("sorting", own.build("sorting"))
    run(f"{FILE}:sorting", *plan.split(), *OPTIONS, "--metrics", str(tmp_path / "losses.jsonl"))
    assert found_losses(tmp_path / "losses.jsonl") == pytest.approx(expected, abs=1e-5)


def test_operators_kept_whole_need_two_samples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{FILE}:sorting", "tp2", "mb1", *OPTIONS]) == 1
    assert "micro batch 1: Sorted needs two samples or more" in capsys.readouterr().err


@pytest.mark.parametrize(("precision", "within"), [("fp32", 1e-5), ("bf16", 0.02)])
def test_a_hugging_face_model_has_the_losses_of_its_labels(
    tmp_path: Path, precision: str, within: float
) -> None:
    pytest.importorskip("transformers", reason="needs transformers")
    metrics = tmp_path / "tp2.jsonl"
    run(f"{FILE}:llama", "tp2", "mb2", precision, *OPTIONS, "--metrics", str(metrics))
    expected = own.plain_losses("llama", own.build("llama"))
    assert found_losses(metrics) == pytest.approx(expected, abs=within)


def test_a_module_that_counts_its_samples_is_traced_for_those_of_the_plan(tmp_path: Path) -> None:
    metrics, end = tmp_path / "counting.jsonl", tmp_path / "end.safetensors"
    run(f"{FILE}:Counting", "dp2", "mb2", *OPTIONS, "--metrics", str(metrics), "--export", str(end))
    expected = own.plain_losses("Counting", own.build("Counting"))
    assert found_losses(metrics) == pytest.approx(expected, abs=1e-5)
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    rows = safetensors.load_file(end)["rows.weight"]
    assert torch.equal(rows, own.build("Counting").rows.weight)  # frozen


def test_nothing_is_dropped_in_an_evaluation(tmp_path: Path) -> None:
    metrics = tmp_path / "one.jsonl"
    run(
        f"{FILE}:dropping", "dp1", "--steps", "1", "--rate", "0", "--evaluate-every", "1",
        "--metrics", str(metrics),
    )  # fmt: skip
    module, data = own.build("dropping"), own.samples()
    held_out = [rows for number in range(8) if (rows := data.evaluation(number)) is not None]
    rows = torch.cat([torch.from_numpy(each) for each in held_out])
    with torch.no_grad():
        expected = own.LOSSES["gpt"](module.eval(), rows[:, :-1], rows[:, 1:]).item()
    learned, evaluated = (json.loads(line) for line in metrics.read_text().splitlines())
    assert evaluated["evaluation_loss"] == pytest.approx(expected, abs=1e-5)
    first = torch.from_numpy(data.step(0))
    with torch.no_grad():
        whole = own.LOSSES["gpt"](module, first[:, :-1], first[:, 1:]).item()
    assert learned["loss"] != pytest.approx(whole, abs=1e-4)  # half of it was dropped


def test_fewer_processes_go_on_with_it(tmp_path: Path) -> None:
    metrics = tmp_path / "fewer.jsonl"
    launched.hold(metrics, 3)
    process = launched.start_held(
        f"{FILE}:gpt", "dp2", "--steps", "20", "--rate", str(own.RATE), "--every", "2",
        "--checkpoint", str(tmp_path / "kept"), "--metrics", str(metrics), "--elastic",
    )  # fmt: skip
    launched.wait_for_step(process, metrics, 3)
    launched.kill(launched.ranks_of(process)[1])
    launched.release(metrics)
    result = launched.finish(process)
    assert result.returncode == 0, result.stderr
    assert "going on with 1 processes" in result.stderr
    expected = own.plain_losses("gpt", own.build("gpt"), steps=20)
    assert found_losses(metrics) == pytest.approx(expected, abs=1e-4)


ERRORS = {
    f"{FILE}x.py:gpt": f"there is no file {FILE}x.py; check the path",
    "no.such.module:gpt": "there is no module no; install it",
    "tests.runtime.own_modulez:gpt": "there is no module tests.runtime.own_modulez; install it",
    f"{FILE}:": "names no factory; write",
    f"{FILE}:gptt": 'factory "gptt": no such name; did you mean "gpt"?',
    f"{FILE}:number": "is of type int, and cannot be called",
    f"{FILE}:raising": "the factory raises ValueError: no such size (own_modules.py, line ",
    f"{FILE}:nothing": "the factory returns NoneType, and not a torch.nn.Module; return the module",
    f"{FILE}:frozen": "all of its weights are frozen, or its loss uses none; let some require a gradient",
    f"{FILE}:Pooled": 'module "Pooled": returns result [2, 256], not logits [batch, seq, vocab]',
    f"{FILE}:Branching": 'module "Branching": PyTorch cannot export it (',
    f"{FILE}:Likelihood": "its loss has no plain cross entropy, and a token file has next tokens only",
    f"{FILE}:Behind": "neither the label there nor the next one",
    f"{FILE}:narrow": "has a vocabulary of 256, and the model one of 100",
}


@pytest.mark.parametrize("model", ERRORS, ids=[each.rpartition("/")[2] for each in ERRORS])
def test_what_cannot_be_run_is_refused(model: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "dp2", "--seq", "16"]) == 1
    error = capfd.readouterr().err
    assert error.startswith("trainwright: ")
    assert ERRORS[model] in error
    assert error.count("\n") == 1


def test_a_sequence_too_long_for_its_positions_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{FILE}:gpt", "dp2", "--seq", "64"]) == 1
    assert "the model has 32 positions" in capfd.readouterr().err


def test_a_file_without_all_weights_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = own.build("masked").state_dict()
    del state["head.bias"]
    torch.save(state, tmp_path / "less.pt")
    assert main(["run", f"{FILE}:masked", "dp2", "--seq", "16", "--from", str(tmp_path / "less.pt")]) == 1
    assert "has no weight head.bias; it has embedding.weight" in capfd.readouterr().err


def test_a_broken_import_is_said_once_by_all_processes(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import math\n\nmath.no_such_name\n")
    result = launched.torchrun(2, *launched.COMMAND, f"{broken}:build", "dp2")
    assert result.returncode == 1
    assert result.stderr.count("trainwright: ") == 1
    assert (
        "importing it raises AttributeError: module 'math' has no attribute 'no_such_name'" in result.stderr
    )
    assert "(broken.py, line 3); mend it" in result.stderr
    assert "src/trainwright" not in result.stderr  # no traceback but that of torchrun
