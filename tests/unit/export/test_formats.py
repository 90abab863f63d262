"""Files of other formats: said to be what they are; and DeepSpeed's JSON with what it leaves open."""

import json
from typing import Any

import pytest

from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text

AUTO: dict[str, Any] = {
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto", "loss_scale": 0},
    "zero_optimization": {
        "stage": 3, "overlap_comm": False, "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
    },
}  # fmt: skip


def read(tree: object, name: str = "ds.json", devices: int = 8, **stated: object) -> Configured:
    text = tree if isinstance(tree, str) else json.dumps(tree)
    return read_text(text, name, stated=StatedSettings(devices=devices, **stated))  # type: ignore[arg-type]


def test_what_the_trainer_fills_in_is_stated_with_the_options_that_the_refusal_names() -> None:
    with pytest.raises(BadInput, match=r"train_micro_batch_size_per_gpu.* state --micro-batch N"):
        read(AUTO)
    with pytest.raises(BadInput, match="precision is not known; state --precision"):
        read(AUTO, micro_batch=2)
    found = read(AUTO, micro_batch=2, precision="bf16")
    assert str(found.strategy) == "dp8 mb2 zero3 bf16 no-overlap"
    assert (found.global_batch, found.notes) == (16, ())


def test_batch_and_micro_batch_decide_the_accumulation() -> None:
    found = read(AUTO, micro_batch=2, global_batch=64, precision="bf16")
    assert (found.strategy.micro_batch, found.global_batch) == (2, 64)


@pytest.mark.parametrize("name", ["OneBitAdam", "ZeroOneAdam", "OneBitLamb", "Muon", "Adafactor"])
def test_an_optimizer_that_is_not_adam_is_named(name: str) -> None:
    tree = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": name, "params": {"lr": 1e-4}}}
    (note,) = read(tree).notes
    assert f"optimizer {name}" in note
    assert "predicted as Adam" in note
    assert not read(tree | {"optimizer": {"type": "AdamW"}}).notes


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ({"elasticity": {"enabled": True, "max_train_batch_size": 4}}, "elasticity"),
        ({"hybrid_engine": {"enabled": True}}, "hybrid_engine"),
        ({"pipeline": {"stages": 4}}, "pipeline.stages"),
        ({"sequence_parallel_size": 4}, "sequence_parallel_size"),
    ],
)
def test_settings_of_deepspeed_that_change_the_job_are_refused_by_name(
    tree: dict[str, Any], name: str
) -> None:
    with pytest.raises(BadInput, match=name):
        read({"train_micro_batch_size_per_gpu": 1} | tree)


def test_settings_of_deepspeed_that_matter_are_named_and_those_that_are_off_are_not() -> None:
    tree = {
        "train_micro_batch_size_per_gpu": 1, "wall_clock_breakdown": True,
        "hybrid_engine": {"enabled": False},
        "zero_optimization": {
            "stage": 3, "offload_param": {"device": "cpu"}, "zero_hpz_partition_size": 1,
            "zero_quantized_weights": False,
        },
        "my_setting": 3,
    }  # fmt: skip
    assert read(tree).notes == (
        "Not considered, and it matters: zero_optimization.offload_param.",
        "Not known, and not considered: my_setting.",
    )


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora", "LLaMA-Factory"),
        ("base_model: a/b\ndatasets:\n  - path: c\nmicro_batch_size: 2", "axolotl"),
        ("model:\n  tensor_model_parallel_size: 4\ntrain:\n  global_batch_size: 8", "Megatron-Bridge"),
        ("actor_rollout_ref:\n  model:\n    path: a", "verl"),
        ("MODEL_ARGS:\n  --num-layers: 12\n  --micro-batch-size: 4\nTEST_TYPE: regular", "functional tests"),
        ("apiVersion: v1\nkind: Job", "Kubernetes"),
        ("training:\n  whatever: 3\n  other: 4", "is YAML"),
    ],
)
def test_yaml_is_said_to_be_what_it_is(text: str, tool: str) -> None:
    for name in ("job.yaml", "job"):
        with pytest.raises(BadInput, match=tool) as refusal:
            read(text, name)
        assert "TOML" not in str(refusal.value)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"model_type": "llama", "hidden_size": 8}, "describes a model and no job"),
        ({"traceEvents": []}, "is a trace"),
        ({"hello": 1}, "has none of DeepSpeed's settings"),
    ],
)
def test_json_that_is_not_deepspeeds_is_said_to_be_what_it_is(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(tree)


def test_an_answer_of_plan_is_read() -> None:
    plan = {"strategy": {"text": "dp4 tp2 sp mb1 zero1 bf16"}, "global_batch": 64, "seq": 4096}
    answer = {"model": "llama3-8b", "cluster": {}, "stack": "megatron-core", "plans": [plan]}
    found = read(answer, "best.json")
    assert (str(found.strategy), found.global_batch, found.seq) == ("dp4 tp2 sp mb1 zero1 bf16", 64, 4096)
    assert (found.model, found.stack) == ("llama3-8b", "megatron-core")
    with pytest.raises(BadInput, match="is no answer of trainwright plan"):
        read(answer | {"plans": []}, "best.json")


@pytest.mark.parametrize("text", ['{"train_batch_size": 8}', "[training]\nseq_len = 8"])
def test_variables_are_refused_where_there_is_no_script(text: str) -> None:
    with pytest.raises(BadInput, match='--set "TP"'):
        read(text, "file", variables={"TP": "2"})


@pytest.mark.parametrize(
    ("package", "tool"), [("megatron.bridge.recipes", "Megatron-Bridge"), ("transformers", "transformers")]
)
def test_python_of_another_tool_is_said_to_be_what_it_is(package: str, tool: str) -> None:
    text = f"from {package} import x\n\ndef mine() -> ConfigContainer:\n    return x()\n"
    with pytest.raises(BadInput, match=f"configures .*{tool}"):
        read(text, "recipe.py")
