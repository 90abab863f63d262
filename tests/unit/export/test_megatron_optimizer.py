"""Optimizers that Megatron-LM's flags state are read as they are exported."""

import pytest

from trainwright.errors import BadInput
from trainwright.export.handover import Handover
from trainwright.export.reading.configured import StatedSettings
from trainwright.export.reading.read import read_text
from trainwright.export.targets import export_text
from trainwright.model.load import load_model
from trainwright.plan.strategy import parse_strategy
from trainwright.stack.load import capability_of


@pytest.mark.parametrize("optimizer", ["", *capability_of("megatron-core").optimizers[1:]])
@pytest.mark.parametrize("grad_dtype", ["", "bf16"])
def test_what_is_exported_is_read_back(optimizer: str, grad_dtype: str) -> None:
    handover = Handover(
        strategy=parse_strategy("dp8 mb1 zero1 bf16"), global_batch=8, seq=2048, model="llama3-8b",
        architecture=load_model("llama3-8b"), optimizer=optimizer, grad_dtype=grad_dtype,
    )  # fmt: skip
    found = read_text(export_text(handover, "megatron"), "a script", stated=StatedSettings(devices=8))
    assert (found.optimizer, found.grad_dtype) == (optimizer, grad_dtype)
    assert not any("Not considered" in note for note in found.notes)


@pytest.mark.parametrize(
    ("zero", "gathered", "said"), [(0, False, False), (1, True, False), (1, False, True)]
)
def test_low_weights_without_their_gather_are_remarked(zero: int, gathered: bool, said: bool) -> None:
    """Without sharded state they are predicted so; with it the export always gathers them in fp8."""
    handover = Handover(
        strategy=parse_strategy(f"dp8 mb1 zero{zero} fp8"), global_batch=8, seq=2048, model="llama3-8b",
        architecture=load_model("llama3-8b"),
    )  # fmt: skip
    text = export_text(handover, "megatron")
    assert ("--fp8-param-gather" in text) == (zero == 1)
    text = text if gathered else text.replace("--fp8-param-gather", "")
    found = read_text(text, "a script", stated=StatedSettings(devices=8))
    assert any("2 bytes per parameter more" in note for note in found.notes) == said


@pytest.mark.parametrize(("plan", "recipe"), [
    ("dp8 mb1 zero1 fp8", "tensorwise"), ("dp8 mb1 zero1 offload-optimizer fp8", "delayed"),
    ("dp1 tp8 mb1 offload-optimizer fp8", "tensorwise"),
])  # fmt: skip
def test_fp8_weights_that_are_updated_on_the_host_have_delayed_scaling(plan: str, recipe: str) -> None:
    handover = Handover(
        strategy=parse_strategy(plan), global_batch=8, seq=2048, model="mixtral-8x7b",
        architecture=load_model("mixtral-8x7b"),
    )  # fmt: skip
    text = export_text(handover, "megatron")
    assert f"--fp8-recipe {recipe}\n" in text
    assert read_text(text, "a script", stated=StatedSettings(devices=8)).refused == ()


def test_delayed_scaling_goes_with_no_recomputed_norm_or_expert_activation() -> None:
    for modules, legal in (("mlp_norm", False), ("moe_act", False), ("core_attn", True)):
        plan = f"dp8 mb1 zero1 offload-optimizer fp8 recompute={modules}"
        handover = Handover(
            strategy=parse_strategy(plan), global_batch=8, seq=2048, model="mixtral-8x7b",
            architecture=load_model("mixtral-8x7b"),
        )  # fmt: skip
        if legal:
            assert "--fp8-recipe delayed" in export_text(handover, "megatron")
            continue
        with pytest.raises(BadInput, match="recomputes none of norm, mlp_norm, moe_act with fp8"):
            export_text(handover, "megatron")


@pytest.mark.parametrize("modules", ["norm", "mlp_norm"])
def test_recomputed_norms_need_the_model(modules: str) -> None:
    """Megatron's label `layernorm` frees `norm` before latent attention, else `mlp_norm` before experts."""
    strategy = parse_strategy(f"dp8 mb1 zero1 recompute={modules}")
    with pytest.raises(BadInput, match="needs the layers of the model: state --model"):
        export_text(Handover(strategy=strategy, global_batch=8), "megatron")
