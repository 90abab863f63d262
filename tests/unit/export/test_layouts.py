"""Pipeline layouts and uneven stages: what Megatron-LM's and torchtitan's settings say of layers."""

import re

import pytest

from trainwright.errors import BadInput
from trainwright.export.pipeline_layout import parse_layout, render_layers
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.read import read_text

SIZES = (
    "pretrain_gpt.py --hidden-size 256 --num-attention-heads 4 --seq-length 512 --vocab-size 1024 "
    "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 64 --bf16 "
)


def read(text: str, layers: int = 61, devices: int = 16, **stated: object) -> Configured:
    settings = StatedSettings(devices=devices, **stated)  # type: ignore[arg-type]
    return read_text(f"{SIZES} --num-layers {layers} {text}", "line", stated=settings)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("Et*3|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),
        ("Etttt|tttt|tttL", [4, 4, 3]),
        ("E|t|tL", [0, 1, 1]),
        ("Et|t||t|L", [1, 1, 0, 1, 0]),
        ("Et*2|(t*2|)*3,t*3|(t*2|)*3,tL", [2, 2, 2, 2, 3, 2, 2, 2, 1]),
        ("Et*4|(t*4|)*14tmL", [4, *[4] * 14, 1]),
    ],
)
def test_a_layout_is_read_as_megatron_reads_it(text: str, layers: list[int]) -> None:
    assert list(parse_layout(text, "layout").layers) == layers


@pytest.mark.parametrize("text", ["Ex|tL", "E t|tL", "(tt|*2", "", "Et*|L", "E(t|(t|)*2)*2L"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no layout of E"):
        parse_layout(text, "layout")


def test_an_absurd_layout_is_refused_at_once() -> None:
    with pytest.raises(BadInput, match="more than 100,000 letters"):
        parse_layout("Et*999999999|L", "layout")
    with pytest.raises(BadInput, match="more than 100,000 letters"):
        parse_layout("E(t*900|)*900000,L", "layout")


def test_equal_numbers_are_counted() -> None:
    assert render_layers([3, 4, 4, 4, 2]) == "3, 4 x3, 2"


@pytest.mark.parametrize(
    ("flags", "layers", "plan"),
    [
        ("--pipeline-model-parallel-size 16 --pipeline-model-parallel-layout 'Et*3|(tt|)*29,|L'", 61, "vpp2"),
        (
            "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*15|t*16|t*16|t*14L'",
            61,
            "pp4 mb1",
        ),
        (
            "--pipeline-model-parallel-size 16 --num-virtual-stages-per-pipeline-rank 8 "
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            126,
            "pp16 vpp8",
        ),
        (
            "--pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 1 "
            "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            126,
            "pp16 vpp8",
        ),
        (
            "--pipeline-model-parallel-size 16 --decoder-first-pipeline-num-layers 7 "
            "--decoder-last-pipeline-num-layers 7",
            126,
            "pp16 mb1",
        ),
    ],
)
def test_chunks_are_read_from_every_way_to_state_them(flags: str, layers: int, plan: str) -> None:
    found = read(flags, layers)
    assert plan in str(found.strategy)
    assert not any("is not read" in note for note in found.notes)


def test_the_split_of_405b_is_predicted_as_it_is_stated() -> None:
    flags = "--pipeline-model-parallel-size 16 --num-virtual-stages-per-pipeline-rank 8 "
    both = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    assert not any("Layers per chunk" in note for note in read(flags + both, 126).notes)


def test_layers_that_differ_from_those_of_the_prediction_are_named() -> None:
    flags = "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*20|t*16|t*16|t*9L'"
    note = "Layers per chunk are 20, 16 x2, 9 by the flags: predicted with 15, 16, 15 x2."
    assert note in read(flags).notes


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*30|t*20|t*11L'", "3 chunks"),
        ("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout bogus", "is no layout"),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 0", "degrees start at 1"),
        (
            "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 9999999",
            "more than 4096 chunks",
        ),
    ],
)
def test_stages_that_cannot_be_are_refused(flags: str, said: str) -> None:
    with pytest.raises(BadInput, match=re.escape(said)):
        read(flags)


def test_what_megatron_would_refuse_is_named_with_its_rule() -> None:
    found = read("--pipeline-model-parallel-size 16 --tensor-model-parallel-size 1")
    assert found.refused == ("Megatron-LM refuses --pipeline-model-parallel-size: must divide 61 layers.",)
    tensor = "--tensor-model-parallel-size 2 --sequence-parallel"
    named = read(tensor, device_family="hopper").refused
    assert len(named) == 1
    assert "CUDA_DEVICE_MAX_CONNECTIONS" in named[0]
    assert read(tensor, device_family="blackwell").refused == ()


@pytest.mark.parametrize(
    "launch",
    [
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\n",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 ",
        "env CUDA_DEVICE_MAX_CONNECTIONS=1 ",
    ],
)
def test_a_variable_of_the_environment_is_read_wherever_it_is_set(launch: str) -> None:
    text = f"{launch}python {SIZES} --num-layers 4 --tensor-model-parallel-size 2 --sequence-parallel"
    stated = StatedSettings(devices=8, device_family="hopper")
    assert read_text(text, "job.sh", stated=stated).refused == ()


TITAN = """[parallelism]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "{schedule}"
module_fqns_per_model_part = {parts}
[training]
local_batch_size = 4
[activation_checkpoint]
mode = "none"
"""


def titan(parts: list[list[str]], schedule: str = "Interleaved1F1B") -> Configured:
    text = TITAN.format(parts=str(parts).replace("'", '"'), schedule=schedule)
    return read_text(text, "t.toml", stated=StatedSettings(devices=4))


def test_modules_of_each_part_state_the_chunks() -> None:
    layers = [f"layers.{index}" for index in range(4)]
    found = titan([["tok_embeddings", layers[0]], [layers[1]], [layers[2]], [layers[3], "norm", "output"]])
    assert "pp2 vpp2" in str(found.strategy)
    assert not any("Layers per chunk" in note for note in found.notes)
    uneven = titan([["tok_embeddings", *layers[:3]], [layers[3], "norm", "output"]], "1F1B")
    assert "Layers per chunk are 3, 1 by the list of modules: predicted with 2 x2." in uneven.notes


def test_parts_that_a_schedule_cannot_have_are_refused() -> None:
    with pytest.raises(BadInput, match="has 3 parts"):
        titan([["tok_embeddings"], ["layers.0"], ["output"]])
    with pytest.raises(BadInput, match="has 4 parts, which 1f1b on 2 stages cannot have"):
        titan([["tok_embeddings"], ["layers.0"], ["layers.1"], ["output"]], "1F1B")
