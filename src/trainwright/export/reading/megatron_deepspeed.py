"""How Megatron-DeepSpeed shards state: its scripts often write DeepSpeed's configuration themselves."""

import json
import re

from trainwright.errors import BadInput
from trainwright.export.reading.launch_flags import Flags


def deepspeed_stage(flags: Flags) -> int:
    """The ZeRO stage: of the configuration if the script writes it, else of `--zero-stage`."""
    words = flags.values.get("deepspeed-config", ())
    name = words[0].shown if words else ""
    written = flags.documents.get(name.rpartition("/")[2])
    stage = _stage_of(written) if written else None
    if stage is not None:
        return stage
    if flags.has("zero-stage"):
        found = re.fullmatch(r"([0-3])(\.0)?", flags.word("zero-stage", ""))
        if found:
            return int(found[1])
    rule = "holds the ZeRO stage, and is not in the text"
    raise BadInput(f"{flags.source}: --deepspeed_config", name, rule, "add --zero-stage N")


def _stage_of(text: str) -> int | None:
    try:
        section = json.loads(text).get("zero_optimization", {})
    except (ValueError, RecursionError, AttributeError):
        found = re.search(r'"stage"\s*:\s*([0-3])\b', text)
        return int(found[1]) if found else None
    stage = section.get("stage", 0) if isinstance(section, dict) else None
    return stage if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3 else None
