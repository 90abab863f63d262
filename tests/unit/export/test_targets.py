"""Targets: golden files, what their settings mean, and errors that name the knob."""

import os
import re
from pathlib import Path

import pytest

from trainwright.errors import BadInput, UnknownName
from trainwright.export.gaps import capability_gaps, target_capability
from trainwright.export.handover import Handover
from trainwright.export.reading.read import read_text
from trainwright.export.targets import export_text
from trainwright.model.load import load_entry, load_model, model_names
from trainwright.plan.strategy import parse_strategy

GOLDEN = Path(__file__).parents[2] / "golden" / "export"
DOCUMENT = (Path(__file__).parents[3] / "docs" / "export.md").read_text(encoding="utf-8")
PLANS = {
    "megatron.sh": (
        "megatron", "mixtral-8x7b",
        "dp8 tp2 sp cp2 allgather pp4 vpp2 interleaved ep4 mb1 zero1 recompute=mlp_norm+moe_act bf16",
    ),
    "megatron_fsdp.sh": ("megatron", "llama3-8b", "dp64 mb1 zero3 hsdp8 full4 offload-optimizer fp8"),
    "megatron_bridge.py": ("megatron-bridge", "llama3-8b", "dp8 tp4 sp pp2 mb2 zero1 full bf16"),
    "torchtitan.py": ("torchtitan", "llama3-70b", "dp16 tp8 sp pp2 mb1 zero2 1f1b full bf16"),
    "torchtitan.toml": ("torchtitan-toml", "llama3-8b", "dp8 cp2 mb1 zero3 hsdp8 recompute=dots bf16"),
    "deepspeed.json": ("deepspeed", "llama3-8b", "dp16 mb2 zero3 offload-optimizer bf16"),
    "nanotron.yaml": ("nanotron", "llama3-8b", "dp4 tp4 sp pp2 mb1 zero1 gpipe full bf16"),
    "nanotron_release.yaml": ("nanotron-0.4", "llama3-8b", "dp4 tp4 sp pp2 mb1 zero1 1f1b bf16"),
    "accelerate.yaml": ("accelerate", "llama3-8b", "dp16 mb1 zero3 hsdp8 full bf16"),
    "maxtext.yaml": (
        "maxtext", "llama3-8b",
        "dp32 tp4 sp cp2 allgather pp2 vpp2 interleaved mb1 zero3 full offload-optimizer bf16",
    ),
    "slurm.sh": ("slurm", "llama3-8b", "dp8 tp4 pp2 mb1 zero1 1f1b"),
}  # fmt: skip


def exported(name: str) -> str:
    to, model, text = PLANS[name]
    plan = parse_strategy(text)
    return export_text(
        Handover(
            strategy=plan, global_batch=plan.dp * plan.micro_batch * 8, seq=4096, model=model,
            architecture=load_model(model),
        ),
        to,
    )  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_what_is_written_is_the_golden_file(name: str) -> None:
    """With UPDATE_GOLDEN set, the files are written anew: read the difference before it is committed."""
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        (GOLDEN / name).write_text(exported(name), encoding="utf-8")
    assert exported(name) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["megatron.sh", "megatron_fsdp.sh"])
def test_every_flag_of_a_plan_is_explained(name: str) -> None:
    plan = exported(name).partition("PLAN_ARGS=(")[2].partition(")")[0]
    for flag in re.findall(r"--[a-z0-9-]+", plan):
        assert f"`{flag}`" in DOCUMENT, flag


@pytest.mark.parametrize(
    ("name", "ours"), [("nanotron.yaml", ("parallelism", "tokens")), ("maxtext.yaml", ())]
)
def test_every_key_of_a_plan_is_explained(name: str, ours: tuple[str, ...]) -> None:
    section = ""
    for line in exported(name).splitlines():
        key, colon, _ = line.partition(":")
        if line.startswith("#") or not colon:
            continue
        section = key if not key.startswith(" ") else section
        names = {"base_config", "run_name", "train_steps", "head_dim", "vocab_size"}
        model = ("base_", "logits_", "decoder_", "mlp_", "num_experts")
        if (section in ours or not ours) and key.strip() not in (*names, *ours) and not key.startswith(model):
            assert f"`{key.strip()}`" in DOCUMENT, key


@pytest.mark.parametrize(
    ("to", "text", "message"),
    [
        ("megatron", "dp2 pp2 zb", "schedule zb: megatron-core 0.20 has 1f1b, interleaved"),
        ("torchtitan", "dp8 zero1", "zero 1: torchtitan 0.3 has stages 0, 2, 3"),
        ("torchtitan", "dp2 cp2 zero3", "cp_kind ring: torchtitan 0.3 has allgather"),
        ("deepspeed", "dp2 pp2", "pp 2: deepspeed 0.19 has no setting for it"),
        ("deepspeed", "dp2 selective", "recompute norm+rope+act+moe_act: deepspeed 0.19 has none, full"),
        ("nanotron", "dp4 zero3", "zero 3: nanotron 0.5 has stages 0, 1"),
        ("accelerate", "dp2 pp2", "pp 2: accelerate 1.10 has no setting for it"),
        ("maxtext", "dp2 pp2", "schedule 1f1b: maxtext 0.2.4 has gpipe, interleaved"),
        ("nanotron-0.4", "dp4 full", "recompute full: nanotron 0.4 has none"),
        ("nanotron-0.4", "dp2 cp2", "cp 2: nanotron 0.4 has no setting for it"),
        ("megatron", "dp4 offload-optimizer", "offload optimizer: megatron-core 0.20 offloads the optimizer"),
        ("megatron-bridge", "dp4 offload-optimizer", "offload optimizer: nemo 26.08 offloads the optimizer"),
        ("megatron-bridge", "dp2 tp2 pp2 zero3 order=tp-pp-dp", "has tp-cp-dp-pp with zero 2 and 3"),
        ("megatron", "dp2 pp2 vpp2 interleaved full3", "recompute_layers 3: megatron-core 0.20 counts them"),
        ("megatron", "dp4 offload-activations", "offload activations: needs the layers of the model"),
        ("megatron", "dp2 pp2 offload-activations4", "offload activations: megatron-core 0.20 offloads"),
        ("torchtitan", "dp4 zero3 offload-activations4", "offload activations: torchtitan 0.3 has none"),
        ("maxtext", "dp4 full offload-activations4", "offload_layers 4: maxtext 0.2.4 offloads"),
    ],
)  # fmt: skip
def test_a_knob_that_cannot_be_said_is_an_error_that_names_it(to: str, text: str, message: str) -> None:
    plan = parse_strategy(text)
    handover = Handover(strategy=plan, global_batch=plan.dp * plan.micro_batch * 4)
    with pytest.raises(BadInput, match=re.escape(message)):
        export_text(handover, to)
    assert "NOT EXPRESSED" in export_text(handover, to, lenient=True)


@pytest.mark.parametrize(
    ("model", "plan", "words"),
    [
        ("llama3-8b", "dp2 pp3", ("Ettttttttttt|ttttttttttt|ttttttttttL",)),
        ("llama3-8b", "dp2 pp2 vpp4 interleaved", ("--num-virtual-stages-per-pipeline-rank 4",)),
        ("llama3-405b", "dp2 pp16 vpp8 interleaved", ("--account-for-embedding-in-pipeline-split",)),
    ],
)
def test_megatron_is_told_the_layers_of_stages_that_do_not_divide(
    model: str, plan: str, words: tuple[str, ...]
) -> None:
    strategy = parse_strategy(plan)
    handover = Handover(
        strategy=strategy, global_batch=2 * 3 * 16, architecture=load_model(model), model=model, seq=8192
    )
    told = export_text(handover, "megatron")
    assert all(word in told for word in words)
    assert read_text(told, "exported").strategy == strategy


@pytest.mark.parametrize(
    ("text", "per_node", "words", "said"),
    [
        ("dp16", 8, ("--nnodes=2", "--nproc-per-node=8"), False),
        ("dp3 tp4", 8, ("--nnodes=3", "--nproc-per-node=4"), True),
        ("dp12", 8, ("--nnodes=2", "--nproc-per-node=6"), True),
        ("dp3", 8, ("--nnodes=1", "--nproc-per-node=3"), False),
        ("dp1 tp12", 8, ("--nnodes=2", "--nproc-per-node=6"), True),
    ],
)
def test_as_many_processes_are_started_as_a_plan_has_devices(
    text: str, per_node: int, words: tuple[str, str], said: bool
) -> None:
    plan = parse_strategy(text)
    told = export_text(Handover(strategy=plan, global_batch=plan.dp, per_node=per_node), "slurm")
    assert all(word in told for word in words)
    assert ("do not fill nodes of 8" in told) == said


def test_an_unknown_target_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match='did you mean "megatron"'):
        export_text(Handover(strategy=parse_strategy("dp2"), global_batch=2), "megatrn")


def decoders() -> list[str]:
    """Models of the catalog that Megatron-LM can be told."""
    found = []
    for name in model_names():
        handover = Handover(
            strategy=parse_strategy("dp2"), global_batch=2, architecture=load_entry(name).architecture
        )
        if load_entry(name).architecture.kind == "decoder" and not list(
            capability_gaps(handover, target_capability("megatron"))
        ):
            found.append(name)
    return found


def test_models_read_back_from_megatrons_flags_are_the_same() -> None:
    from dataclasses import replace

    names = decoders()
    assert len(names) >= 60
    for name in names:
        known = load_model(name)
        handover = Handover(
            strategy=parse_strategy("dp2"), global_batch=2, model=name, architecture=known, seq=known.max_seq
        )
        told = read_text(export_text(handover, "megatron"), "exported")
        assert all("padded to" in note for note in told.notes)  # every flag is one that is read
        found = told.architecture
        assert found is not None
        assert found.vocab == -(-known.vocab // 128) * 128  # as Megatron-LM pads it
        same = {"name": known.name, "shared_experts": known.shared_experts, "vocab": known.vocab}
        assert replace(found, **same) == known, name


@pytest.mark.parametrize(("to", "words"), [
    ("megatron", "--cpu-offloading-num-layers {}"), ("megatron-bridge", "cpu_offloading_num_layers = {}"),
    ("nemo", "cpu_offloading_num_layers = {}"),
])  # fmt: skip
@pytest.mark.parametrize(("text", "layers"), [("", 31), ("5", 5)])
def test_activations_are_offloaded_by_a_number_of_layers(to: str, words: str, text: str, layers: int) -> None:
    plan = parse_strategy(f"dp8 mb1 zero3 offload-activations{text} bf16")
    handover = Handover(
        strategy=plan, global_batch=8, seq=8192, model="llama3-8b", architecture=load_model("llama3-8b")
    )
    assert words.format(layers) in export_text(handover, to)  # of 32, the last of which stays


def test_megatron_offloads_fewer_layers_than_there_are() -> None:
    plan = parse_strategy("dp8 mb1 zero3 offload-activations32 bf16")
    handover = Handover(
        strategy=plan, global_batch=8, seq=8192, model="llama3-8b", architecture=load_model("llama3-8b")
    )
    with pytest.raises(BadInput, match=r"offload_layers 32: .* offloads fewer than the 32"):
        export_text(handover, "megatron")
