"""`trainwright advise`: files that are not there, and what a configuration leaves open."""

import json
from pathlib import Path

import pytest

from tests.commands import asked as command_request
from trainwright.api.configured import build_job, legality_notes, read_configured
from trainwright.api.requests import AdviseRequest
from trainwright.errors import BadInput, UnknownName


def options(*words: str) -> AdviseRequest:
    return command_request(AdviseRequest, "advise", *words)


@pytest.mark.parametrize(
    "name", ["missing_file.sh", "no/such/thing", "best.json", "job.py:function", "a.yaml"]
)
def test_a_file_that_is_not_there_is_said_so(name: str) -> None:
    with pytest.raises(BadInput, match="no such file; check the path"):
        read_configured(options(name, "h100:8"))


def test_the_options_fill_in_what_a_trainer_would(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    tree = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "bf16": {"enabled": "auto"}}
    path.write_text(json.dumps(tree))
    words = ("h100:8", "--model", "llama3-8b", "--micro-batch", "2", "--batch", "64", "--precision", "bf16")
    asked = options(str(path), *words)
    configured = read_configured(asked)
    _, job = build_job(asked, configured)
    assert (configured.strategy.micro_batch, configured.strategy.precision, job.global_batch) == (
        2,
        "bf16",
        64,
    )


def test_a_stated_micro_batch_of_deepspeed_changes_the_accumulation(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    path.write_text(json.dumps(dict(zip(names, (8, 2, 2), strict=True)) | {"bf16": {"enabled": True}}))
    asked = options(str(path), "h100:2", "--model", "gpt2", "--micro-batch", "4")
    configured = read_configured(asked)  # 8 = 2 replicas x 4 x 1, no longer 2 x 2 x 2
    assert (configured.strategy.micro_batch, configured.global_batch) == (4, 8)


def test_a_stated_vocabulary_is_that_of_the_model() -> None:
    asked = options("dp8 zero3", "h100:8", "--model", "gpt2", "--vocab", "32000")
    subject, _ = build_job(asked, read_configured(asked))
    assert subject.title.startswith("gpt2 (110 M parameters)")  # 124.4 M - 18,257 x 768


@pytest.mark.parametrize("words", [("--micro-batch", "2"), ("--precision", "fp8"), ("--set", "TP=2")])
def test_what_a_strategy_says_itself_is_not_stated_again(words: tuple[str, str]) -> None:
    with pytest.raises(BadInput, match=words[0]):
        read_configured(options("dp8 zero3", "h100:8", *words))


def test_options_of_a_wrong_form_are_refused() -> None:
    with pytest.raises(BadInput, match="must be NAME=VALUE"):
        read_configured(options("dp8", "h100:8", "--set", "TP"))
    with pytest.raises(UnknownName, match="--precision"):
        read_configured(options("dp8", "h100:8", "--precision", "half"))


def test_a_script_with_its_variables_stated(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "torchrun pretrain_gpt.py --num-layers 8 --hidden-size 512 --num-attention-heads 8 --seq-length 512 "
        "--vocab-size 1024 --tensor-model-parallel-size $TP --micro-batch-size $1\n"
    )
    asked = options(str(path), "h100:8", "--set", "TP=4", "--set", "1=2")
    assert read_configured(asked).strategy.tp == 4
    assert read_configured(asked).strategy.micro_batch == 2


def test_a_directory_and_a_vocabulary_of_a_model_without_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        read_configured(options(f"{tmp_path}/", "h100:8"))
    asked = options("dp8 zero3", "h100:8", "--model", "vit-base", "--vocab", "10")
    with pytest.raises(BadInput, match="vit-base has no vocabulary"):
        build_job(asked, read_configured(asked))


def test_the_library_says_what_is_not_considered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import trainwright.search.advice as search
    from trainwright.library import advise as ask

    def without_search(job: object, strategy: object, *, limit: object) -> search.Advice:
        rated = search.Rated(strategy=strategy, step_s=1.0, total_bytes=1.0, fits=True)  # type: ignore[arg-type]
        return search.Advice(today=rated, alone=(), steps=(), best=None)

    monkeypatch.setattr("trainwright.api.advise.advise", without_search)
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "OneBitAdam"}}))
    advice = ask(str(path), "h100:8", model="gpt2")
    assert any("OneBitAdam" in note for note in advice.notes)


def legality(*words: str) -> tuple[str, ...]:
    asked = options(*words)
    configured = read_configured(asked)
    return legality_notes(configured, *build_job(asked, configured))


def test_what_the_software_would_refuse_is_named_a_line_each() -> None:
    words = ("h100:64", "--model", "llama3-8b", "--stack", "maxtext")
    assert legality("dp16 pp4 mb1 zero3 1f1b no-overlap", *words) == (
        "The software would refuse schedule 1f1b: maxtext 0.2.4 has gpipe, interleaved.",
        "The software would refuse overlap off: maxtext 0.2.4 has overlap on.",
    )
    assert legality("dp16 pp4 mb1 zero3 gpipe", *words) == ()


def test_what_the_software_advises_against_is_named() -> None:
    (note,) = legality("dp32 tp2 sp mb1 zero3", "h100:64", "--model", "llama3-8b", "--stack", "megatron-core")
    assert note == "megatron-core 0.20 advises against zero 3 with tp or cp before Blackwell."
