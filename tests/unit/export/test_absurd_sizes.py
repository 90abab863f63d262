"""Sizes that no job has are refused at once, in one line, by every reader."""

import re
from pathlib import Path

import pytest

from tests.commands import asked
from trainwright.api.configured import build_job, read_configured
from trainwright.api.requests import AdviseRequest
from trainwright.errors import TrainwrightError
from trainwright.export.handover import Handover
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy

SIZES = ("1000000000", "1" + "0" * 40, "-5", "0", ".nan", "1e9")
# Format, suffix, plan, and a pattern whose group is the number that is replaced.
FIELDS = {
    "megatron": (
        "sh", "dp4 pp2 mb1 zero1",
        [
            r"--num-layers (\d+)", r"--hidden-size (\d+)", r"--num-attention-heads (\d+)",
            r"--vocab-size (\d+)",
            r"--micro-batch-size (\d+)", r"--global-batch-size (\d+)", r"--seq-length (\d+)",
            r"--pipeline-model-parallel-size (\d+)", r"--tensor-model-parallel-size (\d+)",
        ],
    ),
    "nemo": (
        "py", "dp4 pp2 mb1 zero1",
        [
            r"tensor_model_parallel_size = (\d+)", r"micro_batch_size = (\d+)", r"global_batch_size = (\d+)",
            r"model.seq_length = (\d+)",
        ],
    ),
    "torchtitan": (
        "py", "dp4 pp2 mb1 zero2",
        [r"local_batch_size = (\d+)", r"seq_len = (\d+)", r"pipeline_parallel_degree = (\d+)"],
    ),
    "torchtitan-toml": (
        "toml", "dp4 pp2 mb1 zero2",
        [r"local_batch_size = (\d+)", r"seq_len = (\d+)", r"tensor_parallel_degree = (\d+)"],
    ),
    "deepspeed": (
        "json", "dp8 mb1 zero1",
        [r'"train_batch_size": (\d+)', r'micro_batch_size_per_gpu": (\d+)', r'"stage": (\d+)'],
    ),
    "nanotron": (
        "yaml", "dp4 pp2 mb1 zero1",
        [
            r"num_hidden_layers: (\d+)", r" hidden_size: (\d+)", r"vocab_size: (\d+)", r" dp: (\d+)",
            r" pp: (\d+)",
            r"micro_batch_size: (\d+)", r"sequence_length: (\d+)",
        ],
    ),
    "accelerate": (
        "yaml", "dp8 mb1 zero3",
        [r"dp_shard_size: (\d+)", r"parallelism_config_tp_size: (\d+)", r"train_batch_size (\d+)"],
    ),
    "maxtext": (
        "yaml", "dp8 mb1 zero3",
        [
            r"base_num_decoder_layers: (\d+)", r"base_emb_dim: (\d+)", r"vocab_size: (\d+)",
            r"ici_fsdp_parallelism: (\d+)", r"per_device_batch_size: ([\d.]+)", r"max_target_length: (\d+)",
        ],
    ),
}  # fmt: skip
CASES = [(to, field, size) for to, (_, _, fields) in FIELDS.items() for field in fields for size in SIZES]
MEANT = {  # values that stand for a default; nanotron's is what an export without a model writes
    ("nanotron", "sequence_length: ", "0"),
    ("deepspeed", '"stage": ', "0"), ("deepspeed", '"train_batch_size": ', "0"),
    ("deepspeed", 'micro_batch_size_per_gpu": ', "0"),
}  # fmt: skip


def written(to: str) -> str:
    strategy = parse_strategy(FIELDS[to][1])
    return export_text(
        Handover(
            strategy=strategy, global_batch=16, seq=2048, model="llama3-8b",
            architecture=load_model("llama3-8b"), device_family="hopper",
        ),
        to,
    )  # fmt: skip


@pytest.mark.parametrize(("to", "field", "size"), CASES)
def test_an_absurd_size_is_refused_in_one_line(to: str, field: str, size: str, tmp_path: Path) -> None:
    found = re.search(field, text := written(to))
    assert found, field
    path = tmp_path / f"config.{FIELDS[to][0]}"
    path.write_text(text[: found.start(1)] + size + text[found.end(1) :], encoding="utf-8")
    words = [str(path), "h100:8"]
    words += ["--model", "llama3-8b"] if to in ("nemo", "deepspeed", "accelerate") else []
    request = asked(AdviseRequest, "advise", *words)
    if (to, field.partition("(")[0], size) in MEANT:
        build_job(request, read_configured(request))
        return
    with pytest.raises(TrainwrightError) as error:
        build_job(request, read_configured(request))
    assert "\n" not in str(error.value)
