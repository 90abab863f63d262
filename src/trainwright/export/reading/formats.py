"""Which tool a configuration is for, by what is in it."""

import re
from collections.abc import Mapping
from typing import Any

from trainwright.errors import BadInput
from trainwright.export.reading.known_settings import load_table

_KEY = re.compile(r"^[ \t]*(?:-[ \t]+)?(?:--)?([A-Za-z_][\w.-]*)[ \t]*:(?=[ \t\r]|$)", re.MULTILINE)
_INSTEAD = 'write the plan as a strategy, such as "dp8 tp4 pp2 mb1 zero1", with --model'
_OF_DEEPSPEED = (
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "fp16", "bf16", "zero_allow_untested_optimizer", "optimizer", "trainwright",
)  # fmt: skip


def yaml_reader(text: str, source: str) -> str:
    """The name of the reader of a YAML text; raises for a tool that has none, saying which tool it is."""
    keys = {*_KEY.findall(text)}
    for each in load_table("formats")["format"]:
        if keys.issuperset(each["keys"]):
            if "reader" in each:
                return str(each["reader"])
            rule = f"is a configuration of {each['tool']} (YAML), which is not read yet"
            raise BadInput("configuration", source, rule, _INSTEAD)
    rule = "is YAML of no tool that is known: accelerate, MaxText and nanotron are read"
    raise BadInput("configuration", source, rule, _INSTEAD)


def is_yaml(text: str, source: str) -> bool:
    """Whether a text is YAML: most lines that say something are keys or items, as in no script or TOML."""
    if not _KEY.search(text):
        return False
    if source.endswith((".yaml", ".yml")):
        return True
    if source.endswith((".sh", ".py", ".toml", ".bash", ".slurm", ".sbatch")):
        return False
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    marked = [line for line in lines if _KEY.match(line) or re.match(r"\s*(- |---|\.\.\.)", line)]
    return len(marked) * 2 > len(lines)


def check_python(text: str, source: str) -> None:
    """Raise if a Python file configures another tool than torchtitan."""
    for each in load_table("formats")["python"]:
        if re.search(rf"^\s*(?:from|import)\s+{re.escape(each['package'])}\b", text, re.MULTILINE):
            rule = f"configures {each['tool']}, whose Python is not read"
            raise BadInput("configuration", source, rule, _INSTEAD)


def check_json(tree: Mapping[str, Any], source: str) -> None:
    """Raise if an object is no configuration of DeepSpeed, saying what it is."""
    if any(name in tree for name in _OF_DEEPSPEED):
        return
    if "model_type" in tree or "architectures" in tree:
        rule, remedy = (
            "describes a model and no job",
            f"name it with --model, and {_INSTEAD.split(', with')[0]}",
        )
    elif "traceEvents" in tree:
        rule, remedy = "is a trace", "see trainwright compare"
    elif "algorithms" in tree:
        rule, remedy = "holds plans of islands", "see trainwright simulate"
    elif "per_device_train_batch_size" in tree:
        rule, remedy = "are arguments of the Hugging Face Trainer, which are not read yet", _INSTEAD
    else:
        rule, remedy = "has none of DeepSpeed's settings", "name DeepSpeed's configuration"
    raise BadInput("configuration", source, rule, remedy)
