"""`make recipes`: what is selected of a source table, how it is written, and what is left out."""

import csv
import io
from pathlib import Path

import pytest

from trainwright.errors import BadInput
from trainwright.search.published_recipe import RECIPES, load_recipes, parse_recipe
from trainwright.validate.recipe_models import catalog_model, refusal
from trainwright.validate.recipe_page import summarize_recipes
from trainwright.validate.recipe_table import convert_row, main

ECOSYSTEM = Path(__file__).parents[4] / "shared" / "ecosystem"
PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"
COLUMNS = (
    "source_stack", "kind", "recipe", "model", "task", "device", "count", "precision", "tp", "pp", "vpp",
    "cp", "cp_comm", "ep", "etp", "dp", "sp", "fsdp", "mbs", "gbs", "seq", "pp_layout", "layers_first_last",
    "account_embed_loss", "recompute_granularity", "recompute_method", "recompute_layers",
    "recompute_modules", "offload_layers", "offload_modules", "moe_dispatcher", "ep_overlap", "delay_wgrad",
    "cuda_graph", "cuda_graph_scope", "optimizer", "precision_aware_opt", "main_grads_dtype",
    "exp_avg_dtype", "exp_avg_sq_dtype", "grad_reduce_in_fp32", "fp8_param_gather", "tp_comm_overlap",
    "overlap_param_gather", "overlap_grad_reduce", "param_gather_with_opt_step", "capacity_factor", "env",
    "other", "source",
)  # fmt: skip


def row(**changes: str) -> dict[str, str]:
    usual = {
        "source_stack": "Megatron-Bridge", "kind": "perf_recipes", "recipe": "llama3_8b_h100_bf16_config",
        "model": "llama3_8b", "task": "pretrain", "device": "h100", "count": "8", "precision": "bf16",
        "tp": "1", "pp": "1", "cp": "1", "ep": "1", "fsdp": "dist-optimizer (zero1)", "mbs": "1",
        "gbs": "128", "seq": "8192", "source": "src/llama3.py:34@067f987",
    }  # fmt: skip
    return dict.fromkeys(COLUMNS, "") | usual | changes


def write_table(folder: Path, *rows: dict[str, str]) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    (folder / "recipes.csv").write_text(text.getvalue())
    return folder


@pytest.mark.skipif(not ECOSYSTEM.is_dir(), reason="the source table is not at hand")
def test_the_catalog_and_its_page_are_what_the_command_writes(tmp_path: Path) -> None:
    out, page = tmp_path / "out.csv", tmp_path / "page.md"
    assert main([str(ECOSYSTEM), "--out", str(out), "--page", str(page)]) == 0
    assert out.read_bytes() == RECIPES.read_bytes()
    assert page.read_bytes() == PAGE.read_bytes()


def test_recipes_of_unknown_architectures_are_left_out_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path, row(), row(model="nemotron_3_nano"), row(model="nemotron_3_nano"))
    out, page = tmp_path / "out.csv", tmp_path / "page.md"
    assert main([str(table), "--out", str(out), "--page", str(page)]) == 0
    assert len(out.read_text().splitlines()) == 2
    said = capsys.readouterr().out
    assert "left out,   2 of nemotron_3_nano: has Mamba layers" in said
    assert "1 of 3 recipes are of a model in the catalog" in said
    assert "| has Mamba layers; the graph has none | 2 | nemotron_3_nano (2) |" in page.read_text()


def test_a_model_that_nobody_has_classified_stops_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path, row(model="llama9_1t"))
    assert main([str(table), "--out", str(tmp_path / "out.csv"), "--page", str(tmp_path / "page.md")]) == 1
    assert 'recipes: recipe model "llama9_1t": is not known; add it to' in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_a_table_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"task": "pre_train"}, "workload", "pretrain"),
        ({"task": "peft"}, "workload", "lora"),
        ({"kind": "recipes"}, "tuned", False),
        ({"device": "tpu7x (ironwood; count in chips, 2 jax devices a chip)"}, "device", "tpu-v7"),
        ({"device": "tpu7x (ironwood; count in chips, 2 jax devices a chip)"}, "ranks_per_device", 2),
        ({"precision": "fp8 current (tensorwise)"}, "precision", "fp8-tensorwise"),
        ({"recipe": "x_h100_fp8mx_config", "precision": "bf16 (…, name not resolved)"}, "precision", "mxfp8"),
        ({"ep": "-1", "count": "256"}, "ep", 256),
        ({"account_embed_loss": "1/1"}, "stage_rule", "embedding+loss"),
        ({"layers_first_last": "10/12"}, "stage_rule", "10/12"),
        ({"fsdp": "", "optimizer": "dist_muon"}, "sharding", "layer-wise-optimizer"),
        ({"fsdp": ""}, "sharding", ""),
        ({"fsdp": "fsdp ici=64 dcn=1 transpose=2 data_ici=8 data_dcn=-1"}, "replicas", 8),
        ({"fsdp": "fsdp ici=64 dcn=1 transpose=2 data_ici=8 data_dcn=-1"}, "other", {"fsdp_transpose": "2"}),
        ({"recompute_modules": "saved: context mlpwo"}, "saved_modules", ("context", "mlpwo")),
        ({"recompute_modules": "mla_up_proj/mlp"}, "recompute_modules", ("mla_up_proj", "mlp")),
        ({"grad_reduce_in_fp32": "False"}, "grad_dtype", "bf16"),
        ({"other": '{"grad_dtype": "bfloat16"}'}, "grad_dtype", "bf16"),
        ({"other": '{"weight_dtype": "float32", "mtp_num_layers": 1}'}, "other", {}),
        ({"other": '{"mtp_num_layers": 1}'}, "mtp_layers", 1),
        ({"other": '{"init_device": "meta"}'}, "other", {"meta_init": "1"}),
        ({"other": '{"init_device": "mixed"}'}, "other", {}),
        ({"other": '{"peft.target_modules": ["qkv", "proj"]}'}, "other", {"lora_targets": "qkv+proj"}),
        ({"cuda_graph": "none", "cuda_graph_scope": "full"}, "cuda_graph", ""),
        ({"cuda_graph": "local", "cuda_graph_scope": "f u l l _ i t"}, "cuda_graph", "local:full_it"),
        ({"cuda_graph": "te", "cuda_graph_scope": "attn mlp"}, "cuda_graph", "te:attn+mlp"),
        (
            {"env": "A=1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
            "other",
            {"expandable_segments": "1"},
        ),
        ({"delay_wgrad": "True"}, "other", {"delay_wgrad": "1"}),
    ],
)
def test_a_cell_is_written_in_our_words(changes: dict[str, str], field: str, value: object) -> None:
    assert getattr(parse_recipe(convert_row(row(**changes))), field) == value


def test_a_source_of_another_commit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"is not of NVIDIA-NeMo/Megatron-Bridge@067f987"):
        convert_row(row(source="src/llama3.py:34@1234567"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama3 8b", "llama3-8b"),
        ("hf-llama-3.1-8B", "llama3-8b"),
        ("llama31_405b_deterministic", "llama3-405b"),
        ("qwen2_72b", "qwen2.5-72b"),
        ("qwen3_235b_a22b_large_scale", "qwen3-235b-a22b"),
        ("qwen3_vl_235b_a22b", ""),
        ("vlm_llama4 e16", ""),
    ],
)
def test_a_recipe_s_model_is_found_in_the_catalog(text: str, name: str) -> None:
    assert catalog_model(text) == name


def test_a_model_with_a_tower_is_not_its_text_model() -> None:
    assert "tower" in refusal("gemma3_vl_12b")


def test_the_statistic_counts_every_recipe_once() -> None:
    found = summarize_recipes(load_recipes())
    assert found.strategies + found.scaled + len(found.refused) == found.recipes == len(load_recipes())
    assert found.missing["gradient_dtype"] > found.missing["weight_dtype"] > 0
