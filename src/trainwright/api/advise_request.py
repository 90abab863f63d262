"""The request for what to change in a configuration that is in use."""

from dataclasses import KW_ONLY, dataclass, field

from trainwright.api.fields import (
    CLUSTER_HELP,
    ClusterSource,
    FilePath,
    ModelSource,
    Pairs,
    Whole,
    described,
    option,
)
from trainwright.api.subject_fields import ExpertFields, MemoryFields, OptimizerFields


@dataclass(frozen=True)
class AdviseRequest(MemoryFields, ExpertFields, OptimizerFields):
    """How good is this configuration, and what should be changed in it?"""

    config: FilePath = field(
        metadata=described(
            "a file of Megatron-LM's arguments (or the script around them), torchtitan's TOML, Python "
            "(FILE.py:FUNCTION) or flags, Megatron-Bridge's Python, DeepSpeed's JSON, YAML of accelerate, "
            "MaxText or nanotron, a plan that export wrote, an answer of trainwright plan --json, or a "
            'strategy ("dp8 tp4 pp2 mb1 zero1 1f1b")', "CONFIG", is_file=True,
        )
    )  # fmt: skip
    cluster: ClusterSource = field(metadata=described(CLUSTER_HELP, "CLUSTER", is_file=True))
    _: KW_ONLY
    model: ModelSource | None = option(
        "a catalog name, a config.json, or a TOML file (default: by CONFIG)", "MODEL", is_file=True
    )
    batch: Whole | None = option("sequences per step (default: that of CONFIG)", "N")
    seq: Whole | None = option("tokens per sequence (default: that of CONFIG)", "N")
    micro_batch: Whole | None = option("sequences per microbatch (default: that of CONFIG)", "N")
    precision: str | None = option("bf16, fp16, fp8, … (default: that of CONFIG)", "NAME")
    vocab: Whole | None = option("entries of the vocabulary (default: by CONFIG or --model)", "N")
    set: Pairs = option(
        "a variable of a script, before what it sets itself; 1=VALUE for $1; repeatable", "NAME=VALUE",
        default=(),
    )  # fmt: skip
    stack: str | None = option("software (default: that of CONFIG)", "NAME")
    cost: str | None = option("operator times, as in trainwright simulate", "SOURCE", is_file=True)
