"""What of Megatron-LM is read as a plan: GPT pretraining, and no other program or model."""

import re
from fnmatch import fnmatchcase

from trainwright.errors import BadInput
from trainwright.export.reading.known_settings import KnownSettings, load_table
from trainwright.export.reading.launch_flags import Flags

# What flags speak of that are not known, and would change the model or its split.
_STRUCTURAL = re.compile(r"parallel|degree|-layers|hidden|heads|experts|vocab|ffn-|sequence-size")
_CHANGES = {
    "model": ("makes it another model than the sizes say, which is not read", "state --model"),
    "parallelism": ("splits the job in a way that is not read", "describe the plan as a strategy"),
    "job": ("belongs to another job than GPT pretraining", "name a pretraining script"),
}


def check_program(flags: Flags, *, model_stated: bool) -> None:
    """Raise if the program that is launched does not pretrain a GPT decoder.

    One that is not known is accepted where the user states the model.
    """
    if not flags.script:
        return
    programs = load_table("megatron")["programs"]
    name = flags.script.rpartition("/")[2]
    is_gpt = any(fnmatchcase(name, pattern + ".py") for pattern in programs["gpt"])
    path = name if is_gpt else "/".join(flags.script.split("/")[-3:])
    words = re.split(r"[^a-z0-9]+", path.lower())
    for word, what in programs["others"].items():
        if word in words:
            rule = f"{what}, and only GPT pretraining is read"
            raise BadInput(f"{flags.source}: program", flags.script, rule, "name a pretraining script")
    if is_gpt:
        return
    if not model_stated:
        rule = "is not known to pretrain a GPT decoder, so that its flags may describe another model"
        raise BadInput(f"{flags.source}: program", flags.script, rule, "state --model")


def check_scope(flags: Flags, known: KnownSettings, *, model_stated: bool) -> None:
    """Raise for a flag that makes the job another one than is read."""
    for name, words in flags.values.items():
        kind = known.class_of(name)
        if kind == "unknown" and _STRUCTURAL.search(name) and words and words[0].text not in ("0", "1"):
            kind = "parallelism" if "parallel" in name or "degree" in name else "model"
        off = kind in ("model", "parallelism") and bool(words) and words[0].text in ("0", "False", "none")
        if kind not in _CHANGES or off or (kind == "model" and model_stated):
            continue
        rule, remedy = _CHANGES[kind]
        raise BadInput(f"{flags.source}: --{name}", " ".join(each.shown for each in words), rule, remedy)
    if flags.whole("ds-sequence-parallel-size", 1) > 1:
        rule, remedy = _CHANGES["parallelism"]
        value = flags.whole("ds-sequence-parallel-size")
        raise BadInput(f"{flags.source}: --ds-sequence-parallel-size", value, rule, remedy)
