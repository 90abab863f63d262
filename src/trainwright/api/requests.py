"""Requests: what can be asked, apart from the best plans."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from trainwright.api.fields import (
    CLUSTER_HELP,
    ClusterSource,
    FilePath,
    ModelSource,
    Pairs,
    Request,
    Whole,
    described,
    option,
)
from trainwright.api.subject_fields import (
    COST_HELP,
    RUNS_HELP,
    BatchFields,
    ExpertFields,
    MemoryFields,
    OptimizerFields,
    SubjectFields,
)
from trainwright.api.terms_fields import TermsFields

if TYPE_CHECKING:
    from trainwright.api.strategy_plans import StrategyPlans
    from trainwright.plan.plan import Plan
    from trainwright.plan.strategy import Strategy
    from trainwright.report.summary import Summary
    from trainwright.sweep.types import Sweep

# A plan as users hand it over: text, a file, or what an earlier request answered.
PlanSource: TypeAlias = Union[FilePath, "Strategy", "Plan", "Summary", "StrategyPlans"]
_PLAN_HELP = 'a strategy ("dp8 tp4 pp2 mb1 zero1 1f1b"), a plan file, a plan of the zoo ("co-shard tp=2"), '
KINDS = ("devices", "networks", "models", "stacks")  # of entries in the catalog


@dataclass(frozen=True)
class SimulateRequest(TermsFields, BatchFields, SubjectFields):
    """What does a step of this plan do?"""

    plan: PlanSource = field(
        metadata=described(
            f"{_PLAN_HELP}or what trainwright plan --json wrote (its best plan, with its batch, software, "
            "optimizer and imbalance of experts)", "PLAN", words=True, is_file=True,
        )
    )  # fmt: skip
    _: KW_ONLY
    algorithm: str | None = option(
        'PLAN is of one island, and islands learn by "diloco every=50", "ist", "local-sgd" or '
        '"streaming-diloco"; of a file with several, the one to take', "TEXT",
    )  # fmt: skip
    islands: Whole | None = option("how many islands (default: by the outermost level of the network)", "N")
    free: bool = option("also what each cause would save if it were free", default=False)


@dataclass(frozen=True)
class ExportRequest(OptimizerFields):
    """What does that tool need, to follow this plan?"""

    plan: PlanSource = field(
        metadata=described(
            f"{_PLAN_HELP}or what trainwright plan --json wrote (its best plan)", "PLAN", words=True,
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


@dataclass(frozen=True)
class CompareRequest(Request):
    """How far is this measured step from the predicted one, and why?"""

    predicted: FilePath | Mapping[str, Any] = field(
        metadata=described("a trace that `simulate --trace` has written", "PREDICTED", is_file=True)
    )
    measured: FilePath | Mapping[str, Any] | Sequence[FilePath | Mapping[str, Any]] = field(
        metadata=described(
            "a trace that `run --record` has written, or traces of PyTorch's profiler, one for each rank",
            "MEASURED", several=True, is_file=True,
        )
    )  # fmt: skip
    _: KW_ONLY
    step: Whole | None = option("of a profiler's trace: which step (default: the last)", "N")


@dataclass(frozen=True)
class ValidateRequest(Request):
    """How well do predictions agree with these runs?"""

    table: FilePath | None = option(
        "one run per row, columns as in docs/validation.md; without it, the catalog's published runs",
        "RUNS.csv", is_argument=True, is_file=True,
    )  # fmt: skip
    _: KW_ONLY
    cost: str | None = option(
        COST_HELP.format("calibrated; profiled times are for rows on the profiled device only"), "SOURCE",
        is_file=True,
    )  # fmt: skip
    runs: FilePath | None = option(RUNS_HELP, "RUNS", is_file=True)


@dataclass(frozen=True)
class CalibrateRequest(Request):
    """What do these measurements correct?"""

    cluster: FilePath = field(
        metadata=described('what was traced, or ran: "h100:8", or a TOML file', "CLUSTER", is_file=True)
    )
    _: KW_ONLY
    traces: Sequence[FilePath] = option(
        "traces that torch.profiler has written with record_shapes=True: refine efficiencies", "TRACE",
        default=(), flag="--from", either="measured", several=True, is_file=True,
    )  # fmt: skip
    runs: FilePath | None = option(
        "runs with step_time_s or memory_gib, columns as in docs/validation.md: correct the level of "
        "predictions (docs/anchoring.md)", "RUNS.csv", either="measured", is_file=True,
    )  # fmt: skip


@dataclass(frozen=True)
class SweepRequest(Request):
    """What is the best strategy of each cluster, model and knob along some axes?"""

    what: Union[FilePath, "Sweep"] = field(
        metadata=described("a sweep; or one of query, plot, check, example", "SWEEP.toml", is_file=True)
    )
    out: FilePath | None = option(
        "the dataset (default: the sweep's name); of plot, where files go (.)", "DIR", is_file=True
    )
    _: KW_ONLY
    workers: Whole | None = option("processes (default: one for each core)", "N")
    ray: str | None = option(
        "run on a Ray cluster, like auto or ray://host:10001; local starts one", "ADDRESS"
    )


@dataclass(frozen=True)
class CatalogRequest(Request):
    """What is known, and from where?"""

    kind: str | None = option("devices, networks, models or stacks", "KIND", is_argument=True)
    name: str | None = option(
        "show one entry in full; of a device with the document of each figure", "NAME", is_argument=True
    )
