"""`--optimizer` and `--grad-dtype`, from plan to export."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import trainwright
from tests.commands import fails
from trainwright.cost.chosen_optimizer import with_optimizer
from trainwright.cost.constants import Stack
from trainwright.errors import BadInput
from trainwright.stack.load import capability_of


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("answers") / "answer.json"
    plans = trainwright.plan(
        "gpt2", "h100:8", stack="megatron-core", fix={"zero": 1, "dp": 8, "offload": "none"}, top=1,
        optimizer="precision-aware-bf16", grad_dtype="bf16",
    )  # fmt: skip
    plans.save_json(path)
    return path


def test_an_answer_carries_them(answer: Path) -> None:
    tree = json.loads(answer.read_text())
    assert (tree["optimizer"], tree["grad_dtype"]) == ("precision-aware-bf16", "bf16")
    memory = tree["plans"][0]["memory_bytes"]
    assert memory["gradients"] == pytest.approx(memory["weights"])  # 2 bytes each
    assert memory["optimizer"] == pytest.approx(memory["weights"] * 3 / 8)  # 6 bytes on 8 ranks


def test_export_of_an_answer_writes_them(answer: Path) -> None:
    text = trainwright.export(answer, "megatron").text
    for line in (
        "--optimizer adam", "--use-precision-aware-optimizer", "--exp-avg-dtype bf16",
        "--exp-avg-sq-dtype bf16", "--main-grads-dtype bf16", "--grad-reduce-in-bf16",
    ):  # fmt: skip
        assert f"\n    {line}\n" in text


def test_simulate_of_an_answer_honours_them(answer: Path) -> None:
    tree = trainwright.simulate("gpt2", "h100:8", answer).to_dict()
    assert (tree["optimizer"], tree["grad_dtype"]) == ("precision-aware-bf16", "bf16")
    assert tree["stack"] == "megatron-core"


def test_advice_on_an_answer_honours_them(answer: Path) -> None:
    assert any("precision-aware-bf16" in note for note in trainwright.advise(answer, "h100:8").notes)


def test_plans_of_the_library_are_exported_with_them() -> None:
    plans = trainwright.plan("gpt2", "h100:8", stack="megatron-core", optimizer="sgd", top=1)
    assert "\n    --optimizer sgd\n" in trainwright.export(plans, "megatron", model="gpt2").text


def test_without_the_options_nothing_is_written_of_them() -> None:
    text = trainwright.export("dp8 mb1 zero1", "megatron", batch=8).text
    assert "--optimizer " not in text
    assert "--grad-reduce" not in text


def test_an_optimizer_that_the_stack_lacks_is_one_line() -> None:
    with pytest.raises(BadInput, match=r"torchtitan 0\.3 has adamw, adamw-bf16; use one of these"):
        trainwright.plan("llama3-8b", "h100:8", stack="torchtitan", optimizer="lion")
    with pytest.raises(BadInput, match="has fp32; use it"):
        trainwright.plan("llama3-8b", "h100:8", stack="torchtitan", grad_dtype="bf16")


@pytest.mark.parametrize(
    ("cluster", "written"),
    [
        ("h100:8", ["--fp8-format hybrid", "--fp8-recipe tensorwise", "--fp8-param-gather"]),
        (
            "b200:8",
            ["--fp8-recipe mxfp8", "--fp8-param-gather", "--reuse-grad-buf-for-mxfp8-param-ag"],
        ),
    ],
)
def test_the_fp8_recipe_is_that_of_the_devices(cluster: str, written: list[str]) -> None:
    text = trainwright.export("dp8 mb1 zero1 fp8", "megatron", cluster=cluster, batch=8).text
    assert all(f"\n    {line}\n" in text for line in written)
    assert "delayed" not in text
    bridge = trainwright.export("dp8 mb1 zero1 fp8", "megatron-bridge", cluster=cluster, batch=8).text
    assert "delayed" not in bridge
    assert ("bf16_with_mxfp8_mixed" in bridge) == (cluster == "b200:8")


def test_weights_are_fp8_alone_only_with_the_distributed_optimizer() -> None:
    text = trainwright.export("dp8 mb1 zero0 fp8", "megatron", cluster="h100:8", batch=8).text
    assert "--fp8-param-gather" not in text
    assert "than predicted" not in text


def test_16_bit_weights_are_predicted_beside_fp8_copies_without_sharded_state() -> None:
    """On Hopper two fp8 layouts are 2 bytes, as in bf16, with zero1; layers have 2 more with zero0."""

    def weights(plan: str) -> float:
        found = trainwright.simulate("gpt2", "h100:8", plan, stack="megatron-core", batch=8).to_dict()
        return float(found["memory"][0]["category_bytes"]["weights"])

    layers = 12 * (12 * 768**2)  # parameters of matrices; norms and biases are under 1 % of them
    assert weights("dp8 mb1 zero1 fp8") == weights("dp8 mb1 zero1 bf16")
    more = weights("dp8 mb1 zero0 fp8") - weights("dp8 mb1 zero0 bf16")
    assert more == pytest.approx(2 * layers, rel=0.01)


def test_sgd_without_momentum_keeps_no_moments() -> None:
    choice = [
        with_optimizer(replace(Stack(name=name), capability=capability_of(name)), "sgd", "").optimizer
        for name in ("maxtext", "megatron-core")
    ]
    assert [each.moment_bytes for each in choice if each] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("to", "optimizer", "grad_dtype", "written"),
    [
        ("megatron-bridge", "muon", "bf16", "cfg.optimizer.optimizer = 'muon'"),
        ("megatron-bridge", "", "bf16", "cfg.mixed_precision.grad_reduce_in_fp32 = False"),
        ("torchtitan", "adamw-bf16", "", "config.optimizer.implementation = 'fused_opt_states_bf16'"),
        ("deepspeed", "lion", "", '"type": "Lion"'),
        ("deepspeed", "", "bf16", '"grad_accum_dtype": "bf16"'),
        ("nanotron", "sgd", "", 'name: "sgd"'),
        ("nanotron", "", "bf16", "accumulate_grad_in_fp32: false"),
        ("maxtext", "muon", "", 'opt_type: "muon"'),
        ("maxtext", "", "bf16", 'grad_dtype: "bfloat16"'),
        ("accelerate", "adamw-8bit", "", "--optim adamw_bnb_8bit"),
    ],
)
def test_every_target_writes_its_own_settings(to: str, optimizer: str, grad_dtype: str, written: str) -> None:
    stated = {"optimizer": optimizer or None, "grad_dtype": grad_dtype or None}
    text = trainwright.export("dp8 mb1 zero0", to, model="llama3-8b", batch=8, **stated).text
    assert written in text
    assert written not in trainwright.export("dp8 mb1 zero0", to, model="llama3-8b", batch=8).text


def test_the_command_line_refuses_a_dtype_in_one_line() -> None:
    said = fails("plan", "gpt2", "h100:8", "--stack", "megatron-core", "--grad-dtype", "fp64")
    assert '--grad-dtype "fp64": megatron-core 0.20 has fp32, bf16' in said
