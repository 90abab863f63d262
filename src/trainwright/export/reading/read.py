"""A configuration of any tool that is known, recognized by what is in it."""

from pathlib import Path

from trainwright.errors import BadInput
from trainwright.export.reading.configured import Configured, StatedSettings
from trainwright.export.reading.deepspeed import parse_json, read_deepspeed
from trainwright.export.reading.formats import check_json, check_python, check_yaml
from trainwright.export.reading.megatron import SIGNATURE, read_megatron
from trainwright.export.reading.own_answer import is_own_answer, read_own_answer
from trainwright.export.reading.torchtitan import read_torchtitan
from trainwright.model.load import check_sizes

_MOST_BYTES = 10_000_000


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
        check_json(tree, source)
        return read_deepspeed(text, source, stated)
    check_yaml(text, source)
    if stated.function or source.endswith(".py"):
        _refuse_variables(stated, source)
        check_python(text, source)
        return read_torchtitan(text, source, stated)
    if any(f"--{name}" in text.replace("_", "-") for name in SIGNATURE):
        found = read_megatron(text, source, stated)
        if found.architecture is not None:
            check_sizes(found.architecture, source)
        return found
    if any(name in text for name in ("parallelism", "training", "torchtitan")):
        if not any(f"--{name}." in text for name in ("parallelism", "training", "job")):
            _refuse_variables(stated, source)
        return read_torchtitan(text, source, stated)
    raise BadInput(
        "configuration", source, "is none of Megatron-LM's flags, torchtitan's settings or DeepSpeed's JSON",
        "name one of these",
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
