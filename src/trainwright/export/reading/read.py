"""A configuration of any tool that is known, recognized by what is in it."""

from pathlib import Path

from trainwright.errors import BadInput
from trainwright.export.reading.accelerate import read_accelerate
from trainwright.export.reading.bridge import read_bridge
from trainwright.export.reading.bridge_values import is_bridge
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.deepspeed import parse_json, read_deepspeed
from trainwright.export.reading.formats import check_json, check_python, is_yaml, yaml_reader
from trainwright.export.reading.maxtext import read_maxtext
from trainwright.export.reading.megatron import SIGNATURE, read_megatron
from trainwright.export.reading.nanotron import read_nanotron
from trainwright.export.reading.own_answer import is_own_answer, read_own_answer
from trainwright.export.reading.own_plan import is_own_plan, read_own_plan
from trainwright.export.reading.torchtitan import read_torchtitan
from trainwright.export.reading.yaml_text import parse_yaml

_MOST_BYTES = 10_000_000
_YAML_READERS = {"nanotron": read_nanotron, "accelerate": read_accelerate, "maxtext": read_maxtext}


def read_text(
    text: str, source: str, devices: int | None = None, stated: StatedSettings | None = None
) -> Configured:
    """The plan of a configuration, on so many devices if it does not say on how many."""
    stated = stated or StatedSettings(devices=devices)
    if text.lstrip().startswith("{"):
        _refuse_script_options(stated, source)
        tree = parse_json(text, source)
        if is_own_answer(tree):
            return read_own_answer(tree, source, stated)
        if "distributed_type" in tree:
            return read_accelerate(tree, text, source, stated)
        check_json(tree, source)
        return read_deepspeed(text, source, stated)
    if is_own_plan(text):
        _refuse_script_options(stated, source)
        return read_own_plan(text, source, stated)
    if is_yaml(text, source):
        _refuse_script_options(stated, source)
        return _YAML_READERS[yaml_reader(text, source)](parse_yaml(text, source), text, source, stated)
    if stated.function or source.endswith(".py"):
        _refuse_variables(stated, source)
        if is_bridge(text):
            return read_bridge(text, source, stated)
        check_python(text, source)
        return read_torchtitan(text, source, stated)
    if any(f"--{name}" in text.replace("_", "-") for name in SIGNATURE):
        return read_megatron(text, source, stated)
    if any(name in text for name in ("parallelism", "training", "torchtitan")):
        if not any(f"--{name}." in text for name in ("parallelism", "training", "job")):
            _refuse_variables(stated, source)
        return read_torchtitan(text, source, stated)
    raise BadInput(
        "configuration", source, "is no configuration of a tool that is known",
        "name Megatron-LM's flags, a Python function of Megatron-Bridge or torchtitan, torchtitan's TOML, "
        "DeepSpeed's JSON, or YAML of accelerate, MaxText or nanotron",
    )  # fmt: skip


def read_file(path: Path, stated: StatedSettings) -> Configured:
    """The plan of a file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise BadInput("configuration", str(path), "is no configuration: too large", "check the path")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise BadInput("configuration", str(path), str(reason), "check the path") from None
    return read_text(text, str(path), stated=stated)


def _refuse_script_options(stated: StatedSettings, source: str) -> None:
    _refuse_variables(stated, source)
    if stated.function:
        raise BadInput(f"{source}: function", stated.function, "is no Python file", "name the file alone")


def _refuse_variables(stated: StatedSettings, source: str) -> None:
    for name in stated.variables:
        raise BadInput("--set", name, f"{source} is no script, and has no variables", "leave --set out")
