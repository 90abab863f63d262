import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch")

import torch

from tests.runtime import launching as launched
from trainwright.cli.main import main
from trainwright.runtime.shelf import kept_checkpoints


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what a run has left."""
    path = tmp_path_factory.mktemp("finished")
    result = launched.run(
        launched.build_model(path), "dp2", "--steps", "12", "--rate", "1e-2", "--warmup", "2",
        "--evaluate-every", "6", "--metrics", str(path / "dp2.jsonl"), "--checkpoint", str(path / "kept"),
        "--every", "4", "--keep", "2", "--export", str(path / "end.safetensors"),
        "--record", str(path / "third.json"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "torchrun --nnodes=NODES --nproc-per-node=2/NODES" in result.stdout
    return path


def test_the_loss_falls_and_every_step_has_its_numbers(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "dp2.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, 13))
    assert steps[0].keys() == {"step", "loss", "gradient_norm", "rate", "tokens_per_s", "seconds"}
    assert steps[0]["rate"] == pytest.approx(0.5e-2)  # half of it after the first of two steps of warmup
    assert steps[0]["loss"] == pytest.approx(5.545, abs=0.1)  # ln 256: it knows nothing
    assert steps[-1]["loss"] < 4.5
    evaluated = [line["evaluation_loss"] for line in lines if "evaluation_loss" in line]
    assert evaluated[1] < evaluated[0] < 5.5


def test_the_last_checkpoints_are_kept(finished: Path) -> None:
    assert [each.step for each in kept_checkpoints(finished / "kept")] == [8, 12]


def test_a_recorded_step_is_a_trace_of_both_processes(finished: Path) -> None:
    trace = json.loads((finished / "third.json").read_text())
    assert {event["pid"] for event in trace["traceEvents"] if event["ph"] == "X"} >= {0, 1}


def test_exported_weights_are_read_under_another_plan_bit_for_bit(finished: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="needs safetensors")
    result = launched.run(
        launched.build_model(finished), "tp2", "--steps", "0", "--from", str(finished / "end.safetensors"),
        "--export", str(finished / "again.pt"),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    first, again = safetensors.load_file(finished / "end.safetensors"), torch.load(finished / "again.pt")
    assert first.keys() == again.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_data_and_first_weights_do_not_depend_on_the_plan(finished: Path) -> None:
    metrics = finished / "other.jsonl"
    result = launched.run(
        launched.build_model(finished), "zb-h1", "--processes", "2", "--steps", "12", "--rate", "1e-2",
        "--warmup", "2", "--metrics", str(metrics),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    found, expected = launched.losses(metrics), launched.losses(finished / "dp2.jsonl")
    assert [loss for _, loss in found] == pytest.approx([loss for _, loss in expected], abs=1e-5)


def test_a_loss_that_is_no_number_ends_the_run_with_advice(tmp_path: Path) -> None:
    result = launched.run(
        launched.build_model(tmp_path), "dp2", "--rate", "1e30", "--clip", "0", "--every", "1",
        "--checkpoint", str(tmp_path / "kept"),
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith("trainwright: step 2: loss nan (samples 8 to 15 of seed 0")
    assert "lower --rate" in result.stderr
    assert "the checkpoint of step 1 is intact" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_plan_for_eight_processes_is_refused_by_two_with_one_message(tmp_path: Path) -> None:
    result = launched.torchrun(2, *launched.COMMAND, launched.build_model(tmp_path), "dp8")
    assert result.returncode == 1
    assert result.stderr.count("trainwright: ") == 1
    assert "is for 8 processes, and 2 started; start 8, change the plan, or use --elastic" in result.stderr
    assert "src/trainwright" not in result.stderr  # no traceback but that of torchrun


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a run prints which is refused before it starts."""
    assert main(["run", *arguments]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_options_that_cannot_be_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = launched.build_model(tmp_path)
    (tmp_path / "odd.bin").write_bytes(b"abc")
    (tmp_path / "short.bin").write_bytes(b"a\0b\0c\0d\0")
    (tmp_path / "large.bin").write_bytes(b"\xff" * 8192)
    cases = {
        ("dp3",): "does not divide by dp·mb = 3",
        ("dp2", "--data", "gone.bin"): "cannot be read (No such file",
        ("dp2", "--data", f"{tmp_path}/odd.bin"): "has 3 bytes",
        ("dp2", "--data", f"{tmp_path}/short.bin"): "has 4 tokens, too few",
        ("dp2", "--data", f"{tmp_path}/large.bin"): "token 0 is 65535, and the model's vocabulary is 256",
        ("dp2", "--seq", "64"): "the model has 32 positions",
        ("dp2", "--precision", "fp8"): "cannot be run; use one of bf16, fp16, fp32",
        ("dp2", "--rate", "fast"): "is no number of 0 or more",
        ("dp2", "--schedule", "odd"): "use constant, cosine or linear",
        ("dp2", "--resume"): "state --checkpoint",
        (
            "dp2",
            "--keep",
            "1",
            "--checkpoint",
            "kept",
        ): "leaves none to use where the last checkpoint is damaged; keep 2 or more",
        ("dp2", "--export", "end.bin"): "name it .safetensors or .pt",
        ("zero-3",): "state --processes",
        ("",): "is empty",
        ("spread",): "is no file, no strategy and no plan of the zoo",
    }
    for arguments, message in cases.items():
        rest = arguments if "--seq" in arguments else (*arguments, "--seq", "16")
        assert message in refused(capsys, model, *rest), arguments


def test_an_encoder_decoder_learns_what_follows_what_it_has_read(tmp_path: Path) -> None:
    model = tmp_path / "translator.toml"
    model.write_text(launched.TINY + 'kind = "encoder_decoder"\nencoder_layers = 2\ntied = true\n')
    found = []
    for plan in ("dp2", "pp2 mb4 1f1b"):
        metrics = tmp_path / f"{plan.split()[0]}.jsonl"
        result = launched.run(
            str(model), *plan.split(), "--steps", "12", "--rate", "1e-2", "--metrics", str(metrics)
        )
        assert result.returncode == 0, result.stderr
        found.append([loss for _, loss in launched.losses(metrics)])
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[0][0] == pytest.approx(5.545, abs=0.1)
    assert found[0][-1] < 4.5


def test_a_model_that_needs_more_than_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    cases = {
        "vit-large": "is given input/pixels, and a token file has next tokens only",
        "bert-large": "attends to the tokens that it is to foretell",
        "t5-small": "a relative position bias has no kernel that attention reads; set position_buckets = 0",
    }
    for model, message in cases.items():
        assert message in refused(capsys, model, "dp2", "--seq", "16")


def test_a_checkpoint_of_another_model_is_refused(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = finished / "other.toml"
    other.write_text(launched.TINY.replace("hidden = 16", "hidden = 32"))
    kept = str(finished / "kept")
    arguments = (str(other), "dp2", "--checkpoint", kept, "--seq", "16")
    assert "is of another model, tiny, and this one is other" in refused(capsys, *arguments, "--resume")
    assert "add --resume, or name another directory" in refused(capsys, *arguments)
    assert [each.step for each in kept_checkpoints(Path(kept))] == [8, 12]
