"""The tables of settings: every name in one class, and what is called understood is read."""

import json
import re
from pathlib import Path

import pytest

import trainwright.export.reading as reading
from trainwright.export.reading.bridge import class_of
from trainwright.export.reading.known_settings import load_known, load_table

SHARED = Path(__file__).parents[4] / "shared" / "ecosystem"
SOURCES = "".join(path.read_text(encoding="utf-8") for path in Path(reading.__path__[0]).glob("*.py"))
needs_facts = pytest.mark.skipif(not SHARED.is_dir(), reason="the tools' own lists are not at hand")
TABLES = ("megatron", "torchtitan", "deepspeed", "nanotron", "maxtext", "accelerate", "bridge")


@pytest.mark.parametrize("name", TABLES)
def test_no_setting_is_in_two_classes(name: str) -> None:
    table = load_table(name)
    lists = [table[key] for key in ("understood", "harmless", "matters")] + [*table["refused"].values()]
    names = [each for one in lists for each in one]
    assert sorted(names) == sorted({*names})


@pytest.mark.parametrize("name", TABLES)
def test_a_setting_that_is_called_understood_is_read_somewhere(name: str) -> None:
    for each in load_known(name).understood:
        key = each.rstrip("*").rpartition(".")[2] if name != "megatron" else each
        short = key.removesuffix("-model-parallel-size").removesuffix("-parallel-size")
        short = short.removeprefix("parallelism_config_")  # which the reader puts in front
        if re.fullmatch(r"(dcn|ici)_[a-z]+_parallelism", key):
            short = key.split("_")[1]
        if name == "bridge" and (
            each in load_table(name)["flags"] or key in ("seq_length", "mixed_precision")
        ):
            continue  # read by the flag of that name
        assert (
            f'"{key}"' in SOURCES
            or f'"{each}"' in SOURCES
            or f'"{short}"' in SOURCES
            or f'}}{short}"' in SOURCES
            or "less_layers" in key
        ), each


@needs_facts
def test_every_argument_of_megatron_is_in_a_class() -> None:
    tree = json.loads((SHARED / "megatron_arguments.json").read_text(encoding="utf-8"))
    names = {flag[2:].replace("_", "-") for each in tree["arguments"] for flag in each["flags"]}
    known = load_known("megatron")
    assert [name for name in sorted(names) if known.class_of(name) == "unknown"] == []


@needs_facts
def test_every_setting_of_a_toml_of_torchtitan_is_in_a_class() -> None:
    tree = json.loads((SHARED / "torchtitan_config_fields.json").read_text(encoding="utf-8"))
    sections = {
        "Job": "job", "Profiling": "profiling", "Metrics": "metrics", "Model": "model", "Comm": "comm",
        "Optimizer": "optimizer", "LRScheduler": "lr_scheduler", "Training": "training", "Float8": "float8",
        "Parallelism": "parallelism", "Checkpoint": "checkpoint", "Validation": "validation", "MX": "mx",
        "ActivationCheckpoint": "activation_checkpoint", "Compile": "compile", "Debug": "debug",
        "FaultTolerance": "fault_tolerance", "Experimental": "experimental",
        "TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile",
    }  # fmt: skip
    releases = [*tree["toml_releases"].values(), tree["main"], tree["release_0_3_0"]]
    known, renamed = load_known("torchtitan"), load_table("torchtitan")["renamed"]
    names = {
        f"{sections[each['cls']]}.{field['name']}"
        for release in releases
        for each in release["classes"]
        if each["cls"] in sections
        for field in each["fields"]
    }
    assert len(names) > 100
    others = {"activation_checkpoint.memory_budget", "activation_checkpoint.visualize_memory_budget_pareto"}
    unknown = {name for name in names - {*renamed} if known.class_of(name) == "unknown"}
    assert unknown <= others  # of a mode that is refused


@needs_facts
def test_every_setting_of_deepspeeds_zero_is_in_a_class() -> None:
    tree = json.loads((SHARED / "deepspeed_config_keys.json").read_text(encoding="utf-8"))
    (zero,) = [each for each in tree["pydantic_classes"] if each["cls"] == "DeepSpeedZeroConfig"]
    known = load_known("deepspeed")
    names = [f"zero_optimization.{field['name']}" for field in zero["fields"]]
    aliases = ("allgather_sequential", "use_all_reduce_for_fetch_params", "module_granularity_threshold")
    unknown = [name for name in names if known.class_of(name) == "unknown" and not name.endswith(aliases)]
    assert unknown == []


SECTIONS = {
    "GPTModelProvider": "model", "TransformerConfig": "model", "MLATransformerConfig": "model",
    "ModelParallelConfig": "model", "DistributedDataParallelConfig": "ddp", "OptimizerConfig": "optimizer",
    "TrainingConfig": "train", "DistributedInitConfig": "dist", "CommOverlapConfig": "comm_overlap",
    "MixedPrecisionConfig": "mixed_precision", "CheckpointConfig": "checkpoint",
}  # fmt: skip


@needs_facts
def test_every_field_of_megatron_bridge_is_in_a_class() -> None:
    tree = json.loads((SHARED / "bridge_config_fields.json").read_text(encoding="utf-8"))
    names = {
        f"{SECTIONS[each['cls']]}.{field['name']}"
        for each in (*tree["bridge_classes"], *tree["megatron_core_classes"])
        if each["cls"] in SECTIONS
        for field in each["fields"]
    }
    names |= {name for name in tree["fields_used_by_735_recipes"] if name.count(".") == 1}
    assert len(names) > 500
    assert [name for name in sorted(names) if class_of(name) == "unknown"] == []


@needs_facts
def test_every_key_of_maxtext_is_in_a_class() -> None:
    tree = json.loads((SHARED / "maxtext_base_keys.json").read_text(encoding="utf-8"))
    known = load_known("maxtext")
    assert [name for name in tree["keys"] if known.class_of(name) == "unknown"] == []


@needs_facts
def test_every_field_of_nanotron_and_accelerate_is_in_a_class() -> None:
    nanotron = json.loads((SHARED / "nanotron_config_fields.json").read_text(encoding="utf-8"))
    parts = {"ParallelismArgs": "parallelism", "TokensArgs": "tokens", "OptimizerArgs": "optimizer"}
    parts |= {"ModelArgs": "model", "LlamaConfig": "model.model_config", "Qwen2Config": "model.model_config"}
    known = load_known("nanotron")
    for each in (*nanotron["main"], *nanotron["tags"]["v0.4"]):
        for field in each["fields"] if each["cls"] in parts else ():
            name = f"{parts[each['cls']]}.{field['name']}"
            assert known.class_of(name) != "unknown" or known.class_of(f"{name}.x") != "unknown", name
    accelerate = json.loads((SHARED / "accelerate_fsdp_keys.json").read_text(encoding="utf-8"))
    known = load_known("accelerate")
    for each in accelerate["classes"]:
        for field in each["fields"] if each["cls"] in ("BaseConfig", "ClusterConfig") else ():
            name = field["name"]
            assert known.class_of(name) != "unknown" or known.class_of(f"{name}.x") != "unknown", name
