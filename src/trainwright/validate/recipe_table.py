"""`make recipes`: the catalog's table of published recipes, from a table of what their sources set."""

import argparse
import csv
import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwright.errors import BadInput, TrainwrightError
from trainwright.output_file import save_text
from trainwright.search.published_recipe import COLUMNS, RECIPES, parse_recipe, render_row
from trainwright.validate.recipe_check import check_recipes, render_checked
from trainwright.validate.recipe_models import catalog_model, refusal
from trainwright.validate.recipe_page import render_recipes

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSource:
    """A repository at one commit, and the stack whose recipes it has."""

    stack: str
    release: str
    repository: str
    commit: str
    date: str
    tuned: tuple[str, ...] = ()  # kinds of recipes that are published for their speed


SOURCES = {
    "Megatron-Bridge": RecipeSource(
        stack="megatron-bridge", release="26.08", repository="NVIDIA-NeMo/Megatron-Bridge", commit="067f987",
        date="2026-08-22", tuned=("perf_recipes",),
    ),
    "NeMo 2.0": RecipeSource(
        stack="nemo", release="2.5.0rc0", repository="NVIDIA-NeMo/NeMo", commit="8cfedd7", date="2025-09-20",
        tuned=("recommended_model_configs",),
    ),
    "torchtitan 0.2.2": RecipeSource(
        stack="torchtitan", release="0.2.2", repository="pytorch/torchtitan", commit="73a0e69",
        date="2026-02-20",
    ),
    "MaxText": RecipeSource(
        stack="maxtext", release="0.2.4+", repository="AI-Hypercomputer/maxtext", commit="e591f30",
        date="2026-08-22", tuned=("benchmark",),
    ),
    # The commit's date was not recorded: this is the day by which it had been read.
    "MaxText (tpu-recipes)": RecipeSource(
        stack="maxtext", release="0.2.4+", repository="AI-Hypercomputer/tpu-recipes", commit="c8cfe2f",
        date="2026-11-17", tuned=("benchmark",),
    ),
    "llm-foundry": RecipeSource(
        stack="llm-foundry", release="0.7+", repository="mosaicml/llm-foundry", commit="8c8dd48",
        date="2025-07-21",
    ),
    "nanotron": RecipeSource(
        stack="nanotron", release="0.5+", repository="huggingface/nanotron", commit="2411b02",
        date="2026-04-07",
    ),
}  # fmt: skip
_WORKLOADS = {
    "pretrain": "pretrain", "pre_train": "pretrain", "sft": "sft", "finetune": "sft", "peft": "lora",
    "lora": "lora",
}  # fmt: skip
_DEVICES = {"tpu7x": "tpu-v7"}
_PRECISIONS = {
    "bf16": "bf16", "bfloat16": "bf16", "amp_bf16": "bf16", "MixedPrecisionConfig": "bf16", "fp32": "fp32",
    "fp8": "fp8", "fp8 delayed": "fp8-delayed", "fp8 current (tensorwise)": "fp8-tensorwise",
    "fp8 blockwise": "fp8-blockwise", "fp8_full": "fp8-full", "mxfp8": "mxfp8", "nvfp4": "nvfp4",
    "int8": "int8",
}  # fmt: skip
# The precision in the name of a Bridge recipe, for those whose configuration was not resolved.
_NAMED_PRECISIONS = {
    "bf16": "bf16", "fp8cs": "fp8-tensorwise", "fp8mx": "mxfp8", "fp8sc": "fp8-blockwise",
    "fp8ds": "fp8-delayed", "nvfp4": "nvfp4",
}  # fmt: skip
_DTYPES = {"": "", "float32": "fp32", "bfloat16": "bf16"}
_SHARDINGS = {
    "dist-optimizer (zero1)": "distributed-optimizer", "megatron-fsdp:optim_grads_params": "megatron-fsdp",
    "FULL_SHARD mixed_precision=PURE": "fsdp", "zero0": "ddp",
}  # fmt: skip
_CP_KINDS = {"": "", "a2a": "a2a", "allgather": "all_gather"}
# Settings without a column of their own: as their source names them, and as we do.
_OTHER = {
    "cross_entropy_fusion_impl": "cross_entropy", "num_vocab_tiling": "vocab_tiling",
    "ddp.bucket_size": "bucket_elements", "ddp.fsdp_double_buffer": "fsdp_double_buffer",
    "ddp.suggested_communication_unit_size": "fsdp_unit_elements", "ddp.nccl_ub": "nccl_user_buffers",
    "use_user_buffer_registration": "nccl_user_buffers",
    "ddp.megatron_fsdp_main_grads_dtype": "fsdp_main_grad_dtype",
    "ddp.megatron_fsdp_main_params_dtype": "fsdp_main_param_dtype",
    "ddp.megatron_fsdp_grad_comm_dtype": "fsdp_grad_comm_dtype",
    "ddp.keep_fp8_transpose_cache": "fp8_transpose_cache",
    "keep_fsdp_fp8_transpose_cache": "fp8_transpose_cache",
    "precision.fp8_param_gather": "fp8_param_gather", "precision.fp4_param_gather": "fp4_param_gather",
    "precision.reuse_grad_buf_for_mxfp8_param_ag": "reuse_grad_buffer",
    "ddp.reuse_grad_buf_for_mxfp8_param_ag": "reuse_grad_buffer",
    "precision.first_last_layers_bf16": "bf16_first_last",
    "precision.num_layers_at_start_in_bf16": "bf16_first_layers",
    "precision.num_layers_at_end_in_bf16": "bf16_last_layers",
    "precision.fp8_dot_product_attention": "fp8_attention", "fp8_output_proj": "fp8_output",
    "init_model_with_meta_device": "meta_init", "moe_paged_stash": "paged_stash",
    "moe_shared_expert_overlap": "shared_expert_overlap",
    "moe_router_force_load_balancing": "balanced_routing",
    "use_transformer_engine_op_fuser": "te_op_fuser",
    "peft.dim": "lora_rank", "peft.target_modules": "lora_targets",
    "optimizer_memory_host_offload": "optimizer_offload", "weight_dtype": "weight_dtype",
    "ici_sequence_parallelism": "sequence_axis", "custom_mesh": "custom_mesh",
}  # fmt: skip
_FLAGS = {"delay_wgrad": "delay_wgrad", "param_gather_with_opt_step": "gather_with_optimizer"}
_ENVIRONMENT = {
    "CUDA_DEVICE_MAX_CONNECTIONS=": "max_connections",
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:": "expandable_segments",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read, select, write, and say what was left out and why."""
    parser = argparse.ArgumentParser(prog="python -m trainwright.validate.recipe_table", description=__doc__)
    parser.add_argument("tables", type=Path, help="folder with recipes.csv, as its sources set each field")
    parser.add_argument("--out", type=Path, default=RECIPES, help="where the table goes")
    parser.add_argument("--page", type=Path, default=Path("docs/recipes.md"), help="where the statistic goes")
    parser.add_argument("--report", type=Path, help="where every checked recipe goes, as CSV")
    options = parser.parse_args(arguments)
    try:
        rows = load_source_rows(options.tables / "recipes.csv")
        kept = [row for row in rows if catalog_model(row["model"])]
        left_out = Counter((row["model"], refusal(row["model"])) for row in rows if row not in kept)
        converted = [convert_row(row) for row in kept]
        save_text(options.out, render_table(converted))
        recipes = tuple(parse_recipe(cells) for cells in converted)
        check = check_recipes(recipes)
        save_text(options.page, render_recipes(recipes, left_out, check))
        if options.report:
            save_text(options.report, render_checked(check))
    except TrainwrightError as error:
        print(f"recipes: {error}", file=sys.stderr)
        return 1
    for (model, reason), count in sorted(left_out.items()):
        print(f"left out, {count:3} of {model}: {reason}")
    print(f"{len(kept)} of {len(rows)} recipes are of a model in the catalog: {options.out}, {options.page}")
    return 0


def load_source_rows(path: Path) -> list[Row]:
    """The rows of the source table."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput("table", str(path), f"cannot be read as CSV ({error})", "check the path") from None


def render_table(rows: Sequence[Row]) -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def convert_row(row: Row) -> dict[str, str]:
    """The cells of the catalog's table for a row of the source table."""
    source = SOURCES[row["source_stack"]]
    values: dict[str, object] = {
        "name": row["recipe"], "model": catalog_model(row["model"]), "workload": _WORKLOADS[row["task"]],
        "tuned": row["kind"] in source.tuned, "stack": source.stack, "release": source.release,
        "repository": source.repository, "commit": source.commit, "date": source.date,
        "path": _path(row["source"], source),
    }  # fmt: skip
    values |= _case(row) | _degrees(row) | _sharding(row) | _memory(row) | _state(row) | _communication(row)
    return render_row(values | {"other": dict(_other(row))})


def _path(text: str, source: RecipeSource) -> str:
    """The file with its line, without repository and commit."""
    path, _, commit = text.rpartition("@")
    if source.commit not in commit:
        rule = f"is not of {source.repository}@{source.commit}"
        raise BadInput("source", text, rule, "add the commit to SOURCES")
    return path.removeprefix(source.repository).strip()


def _case(row: Row) -> dict[str, object]:
    device = row["device"].partition(" ")[0]
    return {
        "device": _DEVICES.get(device, device), "devices": _whole(row["count"]),
        "ranks_per_device": 2 if device == "tpu7x" else 1,
        "seq": _whole(row["seq"]), "global_batch": _whole(row["gbs"]), "micro_batch": float(row["mbs"]),
        "precision": _precision(row), "mtp_layers": _settings(row).get("mtp_num_layers", 0),
    }  # fmt: skip


def _precision(row: Row) -> str:
    if "not resolved" not in row["precision"]:
        return _PRECISIONS[row["precision"]]
    named = re.search(r"_(bf16|fp8..|nvfp4)_", row["recipe"])
    return _NAMED_PRECISIONS[named[1]] if named else "bf16"


def _degrees(row: Row) -> dict[str, object]:
    ep = int(row["ep"])
    return {
        **{axis: int(row[axis]) for axis in ("tp", "cp", "pp")},
        "ep": ep if ep > 0 else int(row["count"]),  # -1: as many as there are
        "etp": _whole(row["etp"]), "vpp": _whole(row["vpp"]), "sp": _flag(row["sp"]),
        "cp_kind": _CP_KINDS[row["cp_comm"]], "layout": row["pp_layout"],
        "stage_rule": {"1/1": "embedding+loss"}.get(row["account_embed_loss"], row["layers_first_last"]),
    }  # fmt: skip


def _sharding(row: Row) -> dict[str, object]:
    """How state is sharded, and in how many copies; MaxText's axes beyond one are named under other."""
    text = row["fsdp"]
    if text.startswith("fsdp2"):
        return {"sharding": "fsdp2", "replicas": 1}
    if text.startswith("fsdp ici"):
        return {"sharding": "fsdp", "replicas": max(int(_axis(text, "data_ici")), 1)}
    if row["optimizer"] == "dist_muon" and not text:
        return {"sharding": "layer-wise-optimizer", "replicas": 1}
    return {"sharding": _SHARDINGS[text] if text else "", "replicas": 1}


def _axis(text: str, name: str) -> str:
    match = re.search(rf"\b{name}=(-?\d+)", text)
    return match[1] if match else "1"


def _memory(row: Row) -> dict[str, object]:
    modules = row["recompute_modules"]
    saved = modules.startswith("saved: ")
    words = tuple(modules.removeprefix("saved: ").replace("/", " ").split())
    return {
        "recompute": row["recompute_granularity"], "recompute_method": row["recompute_method"],
        "recompute_layers": _whole(row["recompute_layers"]),
        "recompute_modules": () if saved else words, "saved_modules": words if saved else (),
        "offload_layers": _whole(row["offload_layers"]) or 0,
        "offload_modules": tuple(row["offload_modules"].split()),
    }  # fmt: skip


def _state(row: Row) -> dict[str, object]:
    fp32 = _flag(row["grad_reduce_in_fp32"])
    stated = {None: "", True: "fp32", False: "bf16"}[fp32]
    return {
        "optimizer": row["optimizer"] or str(_settings(row).get("optimizer", "")).lower(),
        "precision_aware": _flag(row["precision_aware_opt"]),
        "grad_dtype": stated or _DTYPES[str(_settings(row).get("grad_dtype", ""))],
        "main_grad_dtype": _DTYPES[row["main_grads_dtype"]], "exp_avg_dtype": _DTYPES[row["exp_avg_dtype"]],
        "exp_avg_sq_dtype": _DTYPES[row["exp_avg_sq_dtype"]],
    }  # fmt: skip


def _communication(row: Row) -> dict[str, object]:
    return {
        "grad_overlap": _flag(row["overlap_grad_reduce"]),
        "param_overlap": _flag(row["overlap_param_gather"]),
        "tp_overlap": _flag(row["tp_comm_overlap"]), "ep_overlap": _flag(row["ep_overlap"]),
        "dispatcher": row["moe_dispatcher"], "cuda_graph": _cuda_graph(row),
    }  # fmt: skip


def _cuda_graph(row: Row) -> str:
    """Who captures, and what: `transformer_engine:attn+moe_router`."""
    kind = {"none": "", "0": "", "1": "on", "1.0": "on"}.get(row["cuda_graph"], row["cuda_graph"])
    scope = row["cuda_graph_scope"]
    if re.fullmatch(r"(\w )+\w", scope):  # a word that was split into letters
        scope = scope.replace(" ", "")
    if not kind or kind == scope or not scope:
        return kind
    return f"{kind}:{scope.replace(' ', '+')}"


def _other(row: Row) -> Iterator[tuple[str, str]]:
    for name, value in _settings(row).items():
        text = _setting_text(value)
        if name in _OTHER and (name, text) != ("weight_dtype", "fp32"):
            yield _OTHER[name], text
        if (name, text) == ("init_device", "meta"):
            yield "meta_init", "1"
    if row["capacity_factor"]:
        yield "capacity_factor", row["capacity_factor"]
    for column, name in (
        ("delay_wgrad", "delay_wgrad"),
        ("param_gather_with_opt_step", "gather_with_optimizer"),
    ):
        if row[column]:
            yield name, str(int(row[column] == "True"))
    if row["fsdp"].startswith("fsdp ici") and _axis(row["fsdp"], "transpose") != "1":
        yield "fsdp_transpose", _axis(row["fsdp"], "transpose")
    for word in row["env"].split():
        for prefix, name in _ENVIRONMENT.items():
            if word.startswith(prefix):
                yield name, word.removeprefix(prefix).replace("True", "1")


def _settings(row: Row) -> Mapping[str, object]:
    values: Mapping[str, object] = json.loads(row["other"] or "{}")
    return values


def _setting_text(value: object) -> str:
    """A setting as one word."""
    if isinstance(value, bool) or value in ("True", "False"):
        return str(int(str(value) == "True"))
    if isinstance(value, list):
        return "+".join(map(str, value))
    return _DTYPES.get(str(value), str(value))


def _whole(text: str) -> int | None:
    return int(float(text)) if text else None


def _flag(text: str) -> bool | None:
    return {"": None, "True": True, "False": False}[text]


if __name__ == "__main__":
    raise SystemExit(main())
