"""Configurations as people write them, read as plans."""

import json

import pytest

from trainwright.errors import BadInput
from trainwright.export.reading.read import read_text

MEGATRON = """
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py \\
    --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 \\
    --max-position-embeddings 4096 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\
    --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --use-distributed-optimizer \\
    --micro-batch-size 2 --global-batch-size 256 --fp16 --recompute-activations --lr 3e-4
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "full"
"""
TITAN_PYTHON = """
def mine() -> Trainer.Config:
    return Trainer.Config(
        training=TrainingConfig(local_batch_size=4, seq_len=4096),
        parallelism=ParallelismConfig(tensor_parallel_degree=2, data_parallel_shard_degree=8),
        activation_checkpoint=FullAC.Config(),
    )
"""
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2},
    "fp16": {"enabled": True}, "curriculum_learning": {"enabled": True},
}  # fmt: skip


def test_a_line_of_megatron() -> None:
    found = read_text(MEGATRON, "line")
    words = "dp4 tp4 sp pp2 vpp4 mb2 zero1 interleaved recompute=core_attn fp16 no-overlap"
    assert str(found.strategy) == words
    assert (found.global_batch, found.seq) == (256, 4096)
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.ffn, found.architecture.positions) == (
        32,
        16384,
        4096,
    )


EXPERTS = "--num-experts 8 --moe-ffn-hidden-size 512 --moe-router-topk 2"


@pytest.mark.parametrize(
    ("labels", "model", "modules", "note"),
    [
        ("mlp", "", "mlp", ""),
        ("core_attn mlp", "", "core_attn+mlp", ""),
        ("layernorm", "", "none", "layernorm frees nothing"),
        ("layernorm mlp", "", "mlp", "layernorm frees nothing"),
        ("layernorm moe_act", EXPERTS, "mlp_norm+moe_act", ""),
        ("moe shared_experts", EXPERTS, "shared_experts+moe", ""),
        ("mhc", "", "none", "it matters: --recompute-modules mhc."),
    ],
)
def test_megatrons_labels_are_read_as_modules(labels: str, model: str, modules: str, note: str) -> None:
    flags = f"--recompute-granularity selective --recompute-modules {labels} {model}"
    found = read_text(MEGATRON.replace("--recompute-activations", flags), "line")
    assert found.strategy.recompute == modules
    assert any(note in each for each in found.notes) or not note
    assert note or not any("recompute" in each for each in found.notes)


def test_a_label_that_megatron_does_not_have_is_an_error() -> None:
    flags = "--recompute-granularity selective --recompute-modules moe_akt"
    with pytest.raises(BadInput, match='did you mean "moe_act"'):
        read_text(MEGATRON.replace("--recompute-activations", flags), "line")


def test_a_table_of_torchtitan() -> None:
    found = read_text(TITAN, "file", devices=16)
    assert str(found.strategy) == "dp8 tp2 sp mb2 zero3 full bf16"
    assert (found.global_batch, found.seq, found.model) == (16, 8192, "llama3-8b")


def test_a_function_of_torchtitan_is_read_without_running_it() -> None:
    found = read_text(TITAN_PYTHON, "file")
    assert str(found.strategy) == "dp8 tp2 sp mb4 zero3 full bf16"


def test_flags_of_torchtitan() -> None:
    text = (
        "--module llama3 --config llama3_8b --parallelism.pipeline_parallel_degree 2 "
        "--training.local_batch_size=8"
    )
    found = read_text(text, "line", devices=8)
    assert (found.strategy.pp, found.strategy.dp, found.model) == (2, 4, "llama3-8b")


def test_a_json_of_deepspeed_says_what_is_not_considered() -> None:
    found = read_text(json.dumps(DEEPSPEED), "ds.json", devices=16)
    assert str(found.strategy) == "dp16 mb4 zero2 fp16 no-overlap"
    assert found.global_batch == 16 * 4 * 8
    assert found.notes == ("Not considered, and it matters: curriculum_learning.enabled.",)


@pytest.mark.parametrize(
    ("sizes", "micro", "batch"),
    [
        ({"train_batch_size": 64}, 4, 64),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, 2, 64),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 4}, 1, 64),
        ({"train_micro_batch_size_per_gpu": 2}, 2, 32),
        ({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, 2, 96),
    ],
)
def test_sizes_of_the_batch_that_are_not_there_are_what_deepspeed_makes_of_the_others(
    sizes: dict[str, int], micro: int, batch: int
) -> None:
    """On 16 devices; the rules of DeepSpeedConfig._set_batch_related_parameters."""
    found = read_text(json.dumps(sizes), "ds.json", devices=16)
    assert (found.strategy.micro_batch, found.global_batch) == (micro, batch)


def test_variables_of_a_script_have_the_values_that_it_sets() -> None:
    script = """
TP=4  # in a node
export MB="2"
GPUS=${GPUS:-16}
torchrun --nproc_per_node $GPUS pretrain_gpt.py --tensor-model-parallel-size ${TP} --micro-batch-size $MB
"""
    found = read_text(script, "script")
    assert (found.strategy.dp, found.strategy.tp, found.strategy.micro_batch) == (4, 4, 2)


def test_flags_that_may_change_a_step_and_are_not_considered_are_named() -> None:
    found = read_text(MEGATRON + " --tp-comm-overlap --mtp-num-layers 1 --save-interval 5", "line")
    assert found.notes[0] == "Not considered, and it matters: --tp-comm-overlap, --mtp-num-layers."
    titan = read_text(TITAN.replace("tensor_par", "enable_async_tensor_parallel = true\ntensor_par"), "x", 16)
    assert titan.notes == ("Not considered, and it matters: parallelism.enable_async_tensor_parallel.",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "is no configuration of a tool that is known"),
        ("{", "is not JSON"),
        ('{"train_micro_batch_size_per_gpu": "auto"}', "is filled in by the trainer"),
        ('{"zero_optimization": {"stage": 2}}', "how many devices it is for is not in it"),
        ('{"zero_optimization": "three"}', 'zero_optimization "three": must be a table of settings'),
        ('{"zero_optimization": {}}', "is missing, and train_batch_size too"),
        ('{"train_batch_size": 8, "bf16": {"enabled": "auto"}}', "so that the precision is not known"),
        ('{"train_batch_size": 12}', "is not micro batch x accumulation x replicas = 1 x 1 x 8"),
        ("--tensor-model-parallel-size 0 --micro-batch-size 1", "degrees start at 1"),
        (
            "--tensor-model-parallel-size $TP --micro-batch-size 1",
            r"\$TP is not set in the text; state --set TP=VALUE",
        ),
        ("parallelism = 4", 'parallelism "4": must be a table of settings'),
        ("activation_checkpoint = 'full'\n[training]\nseq_len = 8", "must be a table of settings"),
        ("--tensor-model-parallel-size four --micro-batch-size 1", "must be a whole number"),
        ("--tensor-model-parallel-size 3 --nproc-per-node 8", "do not divide by tp"),
        ("--micro-batch-size 'open", "cannot be read"),
        ("[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = 'Mine'", "no such name"),
        ("[training]\nseq_len = 'long'", "must be a whole number"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_text(text, "file", devices=None if "stage" in text or "nproc" in text else 8)


def test_a_script_with_more_layers_than_any_model_has_is_refused() -> None:
    with pytest.raises(BadInput, match="layers 1000000000: is more than 10,000"):
        read_text(MEGATRON.replace("--num-layers 32", "--num-layers 1000000000"), "line")
