"""Launch scripts in the styles in which people write them, read as Megatron-LM plans."""

import pytest

from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.model.load import load_model

SIZES = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --vocab-size 32000"


def read(text: str, devices: int = 16, **stated: object) -> Configured:
    return read_text(text, "train.sh", stated=StatedSettings(devices=devices, **stated))  # type: ignore[arg-type]


def test_arguments_in_quoted_strings_are_read() -> None:
    script = f"""
#!/bin/bash
GPUS=8
DISTRIBUTED_ARGS="--nproc_per_node $GPUS --nnodes 2"
GPT_ARGS="
    {SIZES} \\
    --micro-batch-size 4 \\
    --global-batch-size 256 --tensor-model-parallel-size 2 --bf16
"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --save $CKPT 2>&1 | tee run.log
"""
    found = read(script)
    assert str(found.strategy) == "dp8 tp2 mb4 zero0 bf16 no-overlap"
    assert found.global_batch == 256
    assert found.architecture is not None
    assert (found.architecture.layers, found.architecture.vocab) == (24, 32000)


def test_quoted_elements_of_arrays_keep_their_flags_and_values() -> None:
    script = """
MODEL_ARGS=(
    "--num-layers 24"   # a flag and its value in one pair of quotes
    "--hidden-size" 2048
    --num-attention-heads 16 '--seq-length' 2048
)
DTYPE_ARGS=("--fp8-format hybrid" "--bf16")
DATA_ARGS=("--vocab-size 128256" "--tokenizer-type NullTokenizer")
torchrun pretrain_gpt.py "${MODEL_ARGS[@]}" ${DTYPE_ARGS[@]} "${DATA_ARGS[@]}" --micro-batch-size 1
"""
    found = read(script)
    assert found.strategy.precision == "fp8"
    assert found.architecture is not None
    assert found.architecture.vocab == 128256


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("pretrain_bert.py", "trains BERT"),
        ("pretrain_t5.py", "trains T5"),
        ("pretrain_ict.py", "trains a retriever"),
        ("pretrain_vlm.py", "vision-language"),
        ("pretrain_mamba.py", "Mamba"),
        ("pretrain_vision_classify.py", "vision"),
        ("examples/multimodal/train.py", "multimodal"),
        ("train_rl.py", "reinforcement learning"),
        ("tools/run_text_generation_server.py", "inference"),
        ("examples/inference/gpt/gpt_batch.py", "inference"),
        ("tools/checkpoint/convert.py", "checkpoints"),
        ("tasks/main.py", "task on a trained model"),
        ("pretrain_gpt_retro.py", "retrieval"),
        ("my_own_training.py", "is not known to pretrain a GPT decoder"),
    ],
)
def test_a_program_that_does_not_pretrain_gpt_is_refused_by_name(program: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refusal:
        read(f"torchrun --nproc-per-node 8 {program} {SIZES} --micro-batch-size 4")
    assert program in str(refusal.value)


def test_a_program_of_ones_own_is_read_where_the_model_is_stated() -> None:
    script = f"torchrun my_own_training.py {SIZES} --micro-batch-size 4 --tensor-model-parallel-size 2"
    found = read(script, architecture=load_model("llama3-8b"))
    assert (found.strategy.tp, found.architecture) == (2, None)


@pytest.mark.parametrize(
    "flag",
    [
        "--hybrid-layer-pattern M-M*", "--experimental-attention-variant dsa", "--encoder-num-layers 12",
        "--hierarchical-context-parallel-sizes 2 2",
        "--perform-rl-step",
        "--use-checkpoint-args", "--ds-sequence-parallel-size 4", "--img-h 336", "--retro-add-retriever",
        "--somebodys-parallel-size 4", "--extra-vocab-size 293",
    ],
)  # fmt: skip
def test_a_flag_that_makes_it_another_job_is_refused_by_name(flag: str) -> None:
    with pytest.raises(BadInput, match=flag.split()[0]):
        read(f"pretrain_gpt.py {SIZES} --micro-batch-size 1 {flag}")


def test_flags_are_reported_by_what_they_do() -> None:
    found = read(f"pretrain_gpt.py {SIZES} --micro-batch-size 1 --lr 1e-4 --ddp-bucket-size 9 --brand-new 3")
    assert found.notes == (
        "Not considered, and it matters: --ddp-bucket-size.",
        "Not known, and not considered: --brand-new.",
    )


@pytest.mark.parametrize("name", ["soap", "adaptive_muon", "somebodys"])
def test_an_optimizer_that_is_not_adam_is_named(name: str) -> None:
    found = read(f"pretrain_gpt.py {SIZES} --micro-batch-size 1 --optimizer {name}")
    assert any(f"optimizer {name}" in note and "predicted as Adam" in note for note in found.notes)


def test_flags_of_older_releases_are_read() -> None:
    script = f"pretrain_gpt.py {SIZES} --model-parallel-size 2 --batch-size 4 --checkpoint-activations --fp16"
    assert str(read(script).strategy) == "dp8 tp2 mb4 zero0 full fp16 no-overlap"


class TestVocabulary:
    SIZES = SIZES.replace(" --vocab-size 32000", " --micro-batch-size 1")

    def test_a_tokenizer_that_is_not_known_is_refused_with_the_option_that_helps(self) -> None:
        script = f"pretrain_gpt.py {self.SIZES} --tokenizer-type HuggingFaceTokenizer --tokenizer-model ./tok"
        with pytest.raises(BadInput, match=r'tokenizer "./tok": decides the vocabulary .* state --vocab'):
            read(script)
        found = read(script, vocab=100_000)
        assert found.architecture is not None
        assert found.architecture.vocab == 100_000

    def test_the_tokenizer_of_a_known_model_decides_and_is_named(self) -> None:
        script = f"pretrain_gpt.py {self.SIZES} --tokenizer-type HuggingFaceTokenizer"
        found = read(script + " --tokenizer-model meta-llama/Meta-Llama-3-8B")
        assert found.architecture is not None
        assert found.architecture.vocab == 128256
        assert any("of llama3-8b, by tokenizer meta-llama" in note for note in found.notes)

    def test_no_tokenizer_at_all_is_an_assumption_that_is_named(self) -> None:
        found = read(f"pretrain_gpt.py {self.SIZES}")
        assert any("GPT-2's 50,257 is assumed" in note for note in found.notes)

    def test_the_vocabulary_is_padded_as_megatron_does(self) -> None:
        """To a multiple of 128 x tp: 50,257 becomes 50 x 1,024 with tp 8."""
        script = f"pretrain_gpt.py {self.SIZES} --tokenizer-type GPT2BPETokenizer"
        found = read(script + " --tensor-model-parallel-size 8")
        assert found.architecture is not None
        assert found.architecture.vocab == 51200


def test_sharding_by_megatron_fsdp_without_its_strategy_is_refused() -> None:
    with pytest.raises(BadInput, match="--data-parallel-sharding-strategy"):
        read(f"pretrain_gpt.py {SIZES} --micro-batch-size 1 --use-megatron-fsdp")


def test_a_stage_of_deepspeed_is_read_from_the_configuration_that_the_script_writes() -> None:
    script = f"""
ZERO=2
cat <<EOT > ds_config.json
{{ "train_batch_size": 64, "zero_optimization": {{ "stage": $ZERO }} }}
EOT
deepspeed --num_gpus 8 pretrain_gpt.py {SIZES} --micro-batch-size 4 --fp16 --deepspeed \\
    --deepspeed_config ds_config.json
"""
    found = read(script)
    assert (found.strategy.zero, found.stack) == (2, "megatron-deepspeed")
    with pytest.raises(BadInput, match="--deepspeed_config"):
        read(f"pretrain_gpt.py {SIZES} --micro-batch-size 4 --deepspeed --deepspeed_config other.json")


def test_more_processes_than_the_cluster_has_are_named() -> None:
    found = read(f"torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py {SIZES} --micro-batch-size 1")
    assert any("launches 32 processes" in note for note in found.notes)


def test_fp8_by_its_older_flags_is_fp8() -> None:
    assert (
        read(f"pretrain_gpt.py {SIZES} --micro-batch-size 1 --bf16 --fp8-hybrid").strategy.precision == "fp8"
    )
