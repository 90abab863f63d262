"""The request for a plan in the form that another tool reads."""

from dataclasses import KW_ONLY, dataclass, field

from trainwright.api.fields import ClusterSource, ModelSource, Whole, described, option
from trainwright.api.plan_source import PLAN_HELP, PlanSource
from trainwright.api.subject_fields import OptimizerFields


@dataclass(frozen=True)
class ExportRequest(OptimizerFields):
    """What does that tool need, to follow this plan?"""

    plan: PlanSource = field(
        metadata=described(
            f"{PLAN_HELP}or what trainwright plan --json wrote (its best plan)", "PLAN", words=True,
            is_file=True,
        )
    )  # fmt: skip
    to: str = field(
        metadata=described(
            "megatron, megatron-bridge, nemo, torchtitan, torchtitan-toml (before 0.3), deepspeed, nanotron, "
            "nanotron-0.4, accelerate, maxtext, torchrun, slurm, trainwright or chakra", "NAME", flag="--to",
        )
    )  # fmt: skip
    _: KW_ONLY
    model: ModelSource | None = option("a catalog name, a config.json, or a TOML file", "MODEL", is_file=True)
    cluster: ClusterSource | None = option(
        '"h100:512" or a TOML file (default: nodes of 8 devices)', "CLUSTER", is_file=True
    )
    per_node: Whole | None = option("devices of a host (default: as the cluster has)", "N")
    batch: Whole | None = option("sequences per step", "N")
    seq: Whole | None = option("tokens per sequence (default: the model's)", "N")
    stack: str | None = option("software that durations are predicted for (chakra)", "NAME")
    per_class: bool = option("chakra: a trace for each class of ranks, and a map of ranks", default=False)
    lenient: bool = option("leave out what the target cannot express, and say so in it", default=False)
