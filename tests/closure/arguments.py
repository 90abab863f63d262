"""Whether each argument of an export is one that its tool has, by lists made from the tools' own sources."""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainwright.export.reading.launch_flags import parse_flags
from trainwright.export.reading.yaml_text import flatten

FACTS = Path(__file__).parents[3] / "shared" / "ecosystem"
_SECTIONS = {
    "model": ("GPTModelProvider", "TransformerConfig", "ModelParallelConfig"),
    "ddp": ("DistributedDataParallelConfig",), "optimizer": ("OptimizerConfig",),
    "train": ("TrainingConfig",), "dist": ("DistributedInitConfig",), "dataset": ("GPTDatasetConfig",),
    "checkpoint": ("CheckpointConfig",), "comm_overlap": ("CommOverlapConfig",),
}  # fmt: skip
_TITAN = {
    "parallelism": ("ParallelismConfig", "Parallelism"), "training": ("TrainingConfig", "Training"),
    "model": ("Model",), "activation_checkpoint": ("ActivationCheckpoint",),
    "optimizer": ("OptimizersContainer.Config", "Optimizer"),
}  # fmt: skip
_NANOTRON = {
    "general": "GeneralArgs", "parallelism": "ParallelismArgs", "tokens": "TokensArgs", "model": "ModelArgs",
    "optimizer": "OptimizerArgs", "tokenizer": "TokenizerArgs", "model.model_config": "LlamaConfig",
    "model.init_method": "RandomInit", "optimizer.optimizer_factory": "AdamWOptimizerArgs",
    "optimizer.learning_rate_scheduler": "LRSchedulerArgs",
}  # fmt: skip


def has_facts() -> bool:
    """Whether the tools' lists are at hand."""
    return FACTS.is_dir()


@cache
def _facts(name: str) -> Any:
    return json.loads((FACTS / f"{name}.json").read_text(encoding="utf-8"))


def has_list(target: str) -> bool:
    """Whether the list of a target's tool is at hand."""
    return target in _CHECKS and has_facts()


def find_invalid(text: str, target: str) -> list[str] | None:
    """Arguments that the tool does not have, or not with this value; None where its list is not at hand."""
    return list(_CHECKS[target](text)) if has_list(target) else None


def _fields(classes: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Fields of some classes, each with its type."""
    wanted = {*names}
    return {
        field["name"]: str(field["type"])
        for each in classes
        if each["cls"] in wanted
        for field in each["fields"]
    }


def _outside(value: object, kind: str) -> bool:
    """Whether a value is none of those that a type lists."""
    listed = re.search(r"Literal\[(.*)\]", kind)
    if listed is None or not isinstance(value, str):
        return False
    return value not in ast.literal_eval(f"[{listed[1]}]")


def _of_megatron(text: str) -> Iterator[str]:
    known = {flag: each for each in _facts("megatron_arguments")["arguments"] for flag in each["flags"]}
    flags = parse_flags(text, "export", {"num-layers", "micro-batch-size"}.__contains__)
    for name, words in flags.values.items():
        fact = known.get(f"--{name}")
        given = [each.text for each in words]
        if fact is None:
            yield f"--{name} is no argument"
        elif fact["choices"] and any(each not in map(str, fact["choices"]) for each in given):
            yield f"--{name} {given} is none of {fact['choices']}"
        elif fact["nargs"] is None and fact["action"] == "StoreAction" and len(given) != 1:
            yield f"--{name} takes one value, and has {given}"
        elif fact["action"] in ("StoreTrueAction", "StoreFalseAction", "StoreConstAction") and given:
            yield f"--{name} takes no value, and has {given}"
        elif fact["type"] == "int" and not all(re.fullmatch(r"-?\d+", each or "") for each in given):
            yield f"--{name} takes whole numbers, and has {given}"


def _of_bridge(text: str) -> Iterator[str]:
    classes = [*_facts("bridge_config_fields")["bridge_classes"]]
    classes += _facts("bridge_config_fields")["megatron_core_classes"]
    whole = _fields(classes, ("ConfigContainer",))
    for section, field, _ in _assigned(text, "cfg"):
        if section not in whole:
            yield f"cfg.{section} is no section"
        elif field and section in _SECTIONS and field not in _fields(classes, _SECTIONS[section]):
            yield f"cfg.{section}.{field} is no field"


def _assigned(text: str, config: str) -> Iterator[tuple[str, str, object]]:
    """Section, field (or nothing) and value (or nothing) of each assignment."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            names = re.sub(r"\[.*", "", ast.unparse(target)).split(".")
            if names[0] == config and len(names) > 1:
                try:
                    value = ast.literal_eval(node.value)
                except ValueError:
                    value = None
                yield names[1], names[2] if len(names) > 2 else "", value


def _of_torchtitan(text: str) -> Iterator[str]:
    classes = _facts("torchtitan_config_fields")["release_0_3_0"]["classes"]
    for section, field, value in _assigned(text, "config"):
        if field:
            yield from _checked(section, field, value, _fields(classes, _TITAN[section]))


def _checked(section: str, field: str, value: object, known: Mapping[str, str]) -> Iterator[str]:
    if field not in known:
        yield f"{section}.{field} is no field"
    elif _outside(value, known[field]):
        yield f"{section}.{field} {value} is not of {known[field]}"


def _of_toml(text: str) -> Iterator[str]:
    classes = _facts("torchtitan_config_fields")["toml_releases"]["v0.2.2"]["classes"]
    for section, values in tomllib.loads(text).items():
        for field, value in values.items():
            yield from _checked(section, field, value, _fields(classes, _TITAN[section]))


def _of_deepspeed(text: str) -> Iterator[str]:
    facts = _facts("deepspeed_config_keys")
    aliases = re.findall(r"alias='(\w+)'|alias=\"(\w+)\"", json.dumps(facts).replace('\\"', '"'))
    known = {field["name"] for each in facts["pydantic_classes"] for field in each["fields"]}
    known |= {key for each in facts["constants_with_defaults"].values() for key in each["keys"]}
    known |= {each["key"] for each in facts["documented_keys"]} | {name for pair in aliases for name in pair}
    known.add("data_types")  # the section of grad_accum_dtype, which the list has without it
    for name in flatten(json.loads(text), "export"):
        if name.startswith(
            ("trainwright", "optimizer.params")
        ):  # the latter are the optimizer's own arguments
            continue
        for part in name.split("."):
            if part not in known:
                yield f"{name} is no key"


def _of_nanotron(release: str) -> Callable[[str], Iterator[str]]:
    def check(text: str) -> Iterator[str]:
        facts = _facts("nanotron_config_fields")
        classes = facts["tags"][release] if release else facts["main"]
        for name in flatten(yaml.safe_load(text), "export"):
            section, _, field = name.rpartition(".")
            if section and field not in _fields(classes, (_NANOTRON.get(section, ""),)):
                yield f"{name} is no field"

    return check


def _of_accelerate(text: str) -> Iterator[str]:
    classes = _facts("accelerate_fsdp_keys")["classes"]
    parts = {
        "": ("BaseConfig", "ClusterConfig"), "fsdp_config": ("FullyShardedDataParallelPlugin",),
        "parallelism_config": ("ParallelismConfig", "TorchContextParallelConfig"),
        "fp8_config": ("TERecipeKwargs", "FP8RecipeKwargs"),
    }  # fmt: skip
    for name in flatten(yaml.safe_load(text), "export"):
        section, _, field = name.rpartition(".")
        known = _fields(classes, parts[section])
        plain = _RENAMED.get(field, field.removeprefix("parallelism_config_").removeprefix("fsdp_"))
        if not {field, plain} & {*known}:
            yield f"{name} is no key"


_RENAMED = {"fsdp_offload_params": "cpu_offload"}  # commands/config/cluster.py writes it so


def _of_maxtext(text: str) -> Iterator[str]:
    facts = _facts("maxtext_base_keys")
    enums = facts["types_py_enums"]
    for name, value in yaml.safe_load(text).items():
        if name not in facts["keys"] and name != "base_config":
            yield f"{name} is no key"
        kind = {"quantization": "QuantizationType", "dtype": "DType"}.get(name)
        if kind and repr(value) not in enums[kind].values():
            yield f"{name} {value} is none of {kind}"


_CHECKS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "megatron": _of_megatron, "nemo": _of_bridge, "torchtitan": _of_torchtitan, "torchtitan-toml": _of_toml,
    "deepspeed": _of_deepspeed, "nanotron": _of_nanotron(""), "nanotron-0.4": _of_nanotron("v0.4"),
    "accelerate": _of_accelerate, "maxtext": _of_maxtext,
}  # fmt: skip
