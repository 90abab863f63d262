"""What a row tells of its software: release, kernels, state, and what its memory counts."""

import pytest

from trainwright.validate.row_software import recipe_state, release_date, row_software


@pytest.mark.parametrize(
    ("release", "date"),
    [
        ("torchtitan 2025-06", "2025-06"),
        ("torch 2.9.0.dev20250811+rocm6.4, torchao 0.13", "2025-08"),
        ("2025-26", "2025"),
        ("2025-01 (torchtitan PR 778)", "2025-01"),
        ("NeMo 26.04", "2026-04"),
        ("NeMo 26.02.01", "2026-02"),
        ("dgxc v25.05", "2025-05"),
        ("", ""),
    ],
)
def test_the_date_of_a_release_is_read_from_its_text(release: str, date: str) -> None:
    assert release_date(release) == date


@pytest.mark.parametrize(
    ("notes", "figure"),
    [
        ("max_memory_allocated 65330982400 bytes", "allocated"),
        ("peak memory as printed (GiB, reserved)", "reserved"),
        ("mem = nvidia-smi GB on most loaded GPU", "device"),
        ("token/p/s 851; mem 55/80", "device"),
        ("mean of iterations 11-20", ""),
    ],
)
def test_notes_say_what_a_figure_of_memory_counts(notes: str, figure: str) -> None:
    assert row_software({"notes": notes}, "megatron-core", "llama3-8b").figure == figure


def test_a_loss_is_fused_where_a_row_or_its_release_says_so() -> None:
    def fused(framework: str, **row: str) -> bool | None:
        return row_software(row, framework, "llama3-8b").fused_loss

    assert fused("megatron-core", other_knobs="+ fused cross entropy") is True
    assert fused("megatron-core", release="2026-03") is None
    assert fused("torchtitan", release="torchtitan 2024-12") is False
    assert fused("torchtitan", release="torch 2.9.0.dev20250811") is True
    assert fused("torchtitan") is None


def test_rows_of_megatron_bridge_have_the_state_of_its_recipes() -> None:
    row = {"source": "NVIDIA Megatron-Bridge performance summary"}
    found = row_software(row, "megatron-core", "deepseek-v3")
    assert (found.optimizer, found.grad_dtype, found.fused_loss) == ("precision-aware-bf16", "bf16", True)
    stated = row_software(row | {"grad_dtype": "fp32"}, "megatron-core", "deepseek-v3")
    assert stated.grad_dtype == "fp32"
    assert row_software({}, "megatron-core", "deepseek-v3").grad_dtype == ""


def test_a_model_without_recipes_has_the_state_of_most() -> None:
    assert recipe_state("megatron-bridge", "no such model").grad_dtype == "bf16"
    assert recipe_state("nemo", "no such model").grad_dtype == "bf16"
