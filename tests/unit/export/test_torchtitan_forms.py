"""torchtitan's configurations of all releases: the same job, or a refusal with the key's name."""

import pytest

from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.model.load import load_model

EARLY_2025 = """
[job]
dump_folder = "./out"
[model]
name = "llama3"
flavor = "405B"
converters = "float8"
[optimizer]
name = "AdamW"
lr = 8e-5
[training]
batch_size = 2
seq_len = 8192
steps = 3000
tensor_parallel_degree = 8
compile = true
[activation_checkpoint]
mode = 'full'
[float8]
enable_fsdp_float8_all_gather = true
"""
REGISTRY = """
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

LENGTH = 4096

def small() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=1, seq_len=LENGTH),
        activation_checkpoint=SelectiveAC.Config(),
    )

def large() -> Trainer.Config:
    config = small()
    config.model_spec = model_registry("70B", converters=[Float8LinearConverter.Config()])
    config.parallelism.tensor_parallel_degree = 8
    config.activation_checkpoint = FullAC.Config()
    return config
"""


def read(text: str, name: str = "job.toml", devices: int = 64, **stated: object) -> Configured:
    return read_text(text, name, stated=StatedSettings(devices=devices, **stated))  # type: ignore[arg-type]


def test_a_file_of_early_2025_is_the_job_that_it_was() -> None:
    found = read(EARLY_2025, devices=512)
    assert str(found.strategy) == "dp64 tp8 sp mb2 zero3 full fp8"
    assert (found.global_batch, found.seq, found.model) == (128, 8192, "llama3-405b")
    assert found.notes == (
        "Not considered, and it matters: training.compile, float8.enable_fsdp_float8_all_gather.",
    )


def test_degrees_under_experimental_are_read() -> None:
    text = EARLY_2025.replace("batch_size = 2", "batch_size = 8\ndata_parallel_replicate_degree = 2") + (
        "[experimental]\ncontext_parallel_degree = 2\npipeline_parallel_degree = 4\n"
        'pipeline_parallel_schedule = "1f1b"\npipeline_parallel_microbatches = 4\n'
    )
    found = read(text, devices=512)
    assert (found.strategy.dp, found.strategy.cp, found.strategy.pp) == (8, 2, 4)
    assert found.strategy.micro_batch == 2  # 8 sequences in 4 microbatches


def test_an_unknown_key_that_may_be_a_degree_is_refused_by_name_in_every_section() -> None:
    for section in ("parallelism", "experimental", "mine"):
        with pytest.raises(BadInput, match=rf"{section}\.hyper_parallel_degree"):
            read(f"[training]\nseq_len = 8\n[{section}]\nhyper_parallel_degree = 4")
    with pytest.raises(BadInput, match=r"training\.hyper_batch"):
        read("[training]\nseq_len = 8\nhyper_batch = 4")


def test_other_unknown_keys_are_named() -> None:
    text = '[training]\nseq_len = 8\n[activation_checkpoint]\nmode = "none"\n[mine]\nspice = "hot"'
    found = read(text)
    assert found.notes == ("Not known, and not considered: mine.spice.",)


@pytest.mark.parametrize(
    ("option", "layers", "mode"),
    [
        ("'op'", 0, "dots"),
        ("'2'", 16, "full"),
        ("'4'", 8, "full"),
        ("'1'", 0, "full"),
        ("3", 10, "full"),
    ],
)
def test_selective_with_a_number_recomputes_every_nth_layer_whole(
    option: str, layers: int, mode: str
) -> None:
    """Of 32 layers every second are 16, every fourth 8, every third 10."""
    text = f"""
[training]
local_batch_size = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = {option}
"""
    found = read(text, architecture=load_model("llama3-8b"))
    assert (found.strategy.recompute, found.strategy.recompute_layers) == (mode, layers)


def test_in_toml_every_second_layer_is_recomputed_unless_stated() -> None:
    found = read('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1')
    assert (found.strategy.recompute, found.strategy.recompute_layers) == ("full", 16)
    with pytest.raises(BadInput, match=r"selective_ac_option.*state --model"):
        read("[training]\nlocal_batch_size = 1")


def test_a_registry_of_several_functions_asks_for_one() -> None:
    with pytest.raises(BadInput, match=r"has 2 functions .* FILE.py:FUNCTION, of small, large"):
        read(REGISTRY, "config_registry.py")
    with pytest.raises(BadInput, match='function "huge": is not there; name one of small, large'):
        read(REGISTRY, "config_registry.py", function="huge")


def test_a_function_of_a_registry_is_read_with_what_it_builds_on() -> None:
    small = read(REGISTRY, "config_registry.py", function="small")
    assert str(small.strategy) == "dp64 mb1 zero3 recompute=dots bf16"
    assert (small.model, small.seq) == ("llama3-8b", 4096)
    large = read(REGISTRY, "config_registry.py", function="large")
    assert str(large.strategy) == "dp8 tp8 sp mb1 zero3 full fp8"
    assert (large.model, large.seq) == ("llama3-70b", 4096)


def test_batches_in_tokens_are_read() -> None:
    """16,384 tokens in sequences of 4,096 are a microbatch of 4; 4,194,304 a step of 1,024."""
    text = """
def mine() -> Trainer.Config:
    return Trainer.Config(
        training=TrainingConfig(
            max_context_length=4096, num_tokens_per_microbatch_per_dp_rank=16384,
            num_tokens_per_train_step=4194304,
        ),
        activation_checkpoint=None,
    )
"""
    found = read(text, "mine.py")
    assert (found.seq, found.strategy.micro_batch, found.global_batch) == (4096, 4, 1024)
    with pytest.raises(BadInput, match="num_tokens_per_microbatch_per_dp_rank"):
        read(text.replace("16384", "5000"), "mine.py")
    with pytest.raises(BadInput, match=r"max_context_length.*another release than seq_len"):
        read(text.replace("max_context_length=4096", "max_context_length=4096, seq_len=4096"), "mine.py")


def test_a_value_that_is_computed_is_refused_by_name() -> None:
    text = REGISTRY.replace("seq_len=LENGTH", "seq_len=length_of(model)")
    with pytest.raises(BadInput, match=r"training.seq_len.*length_of\(model\)"):
        read(text, "config_registry.py", function="small")


def test_settings_under_a_condition_in_python_are_refused() -> None:
    text = REGISTRY.replace(
        "    return config\n", "    if FAST:\n        config.training.seq_len = 8\n    return config\n"
    )
    with pytest.raises(BadInput, match="under a condition"):
        read(text, "config_registry.py", function="large")


def test_flags_over_a_file_that_is_not_there_are_refused() -> None:
    with pytest.raises(BadInput, match=r'--job.config_file "llama3_8b.toml": holds settings'):
        read("torchrun train.py --job.config_file llama3_8b.toml --training.batch_size 2", "run.sh")


def test_what_a_function_of_torchtitan_sets_itself_is_asked_for_or_named() -> None:
    text = "torchrun -m torchtitan.train --config llama3_8b --parallelism.pipeline_parallel_degree 2"
    with pytest.raises(
        BadInput, match=r"local_batch_size.*llama3_8b of torchtitan sets it; state --micro-batch"
    ):
        read(text, "run.sh")
    found = read(text + " --training.local_batch_size 8", "run.sh")
    assert any("training.seq_len" in note and "llama3_8b may set" in note for note in found.notes)


@pytest.mark.parametrize("name", ["Lion", "SGD", "Muon"])
def test_an_optimizer_that_is_not_adam_is_named(name: str) -> None:
    found = read(EARLY_2025.replace('"AdamW"', f'"{name}"'), devices=512)
    assert any(f"optimizer {name}" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[parallelism]\npipeline_parallel_split_points = ['layers.8']", "pipeline_parallel_split_points"),
        ("[fault_tolerance]\nenable = true\ngroup_size = 2", "fault_tolerance"),
        ("[training]\nmixed_precision_param = 'float16'", "mixed_precision_param"),
        ("[training]\nbatch_size = 2\nlocal_batch_size = 4", "training.batch_size"),
        ("[activation_checkpoint]\nmode = 'memory_budget'", "activation_checkpoint.mode"),
    ],
)
def test_what_is_not_read_is_refused_by_name(text: str, key: str) -> None:
    text = text if "[training]" in text else f"{text}\n[training]\nseq_len = 8"
    with pytest.raises(BadInput, match=key):
        read(text, architecture=load_model("llama3-8b"))
