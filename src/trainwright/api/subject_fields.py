"""Fields that say what is trained, on what, with which software and in which batches."""

from dataclasses import KW_ONLY, dataclass, field

from trainwright.api.fields import (
    CLUSTER_HELP,
    MODEL_HELP,
    ClusterSource,
    FilePath,
    ModelSource,
    Pairs,
    Quantity,
    Range,
    Request,
    Whole,
    described,
    option,
)

COST_HELP = (
    "operator times: roofline, calibrated, profiled:FILE or projected:FILE, as trainwright profile writes "
    "them (default: {})"
)
COST_DEFAULT = "those of CLUSTER if it is such a file, else calibrated"
RUNS_HELP = (
    "anchor predictions to runs that you have measured: a table (CSV, docs/validation.md) or what "
    "trainwright calibrate --runs wrote (TOML)"
)


@dataclass(frozen=True, kw_only=True)
class OptimizerFields(Request):
    """The optimizer and its state; without them the stack's own AdamW and gradients are assumed."""

    optimizer: str | None = option(
        "adamw, adamw-mu-bf16, adamw-bf16, adamw-8bit, precision-aware, precision-aware-bf16, "
        "precision-aware-fp8, muon, adafactor, sgd or lion, of those that the stack has (default: the "
        "stack's AdamW; plan takes a published recipe's where that is faster)", "NAME",
    )  # fmt: skip
    grad_dtype: str | None = option(
        "of gradients as accumulated and reduced: fp32 or bf16 (default: the stack's; plan takes a published "
        "recipe's where that is faster)", "NAME",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpertFields(Request):
    """The load of experts; without it the stack's own imbalance is assumed."""

    expert_imbalance: Quantity | None = option(
        "routed tokens of the rank with most, relative to the mean, 1 or more: in memory, and in the time of "
        "experts and their all-to-alls (default: the stack's, 1 to 1.1)", "FACTOR",
    )  # fmt: skip


@dataclass(frozen=True)
class SubjectFields(ExpertFields, OptimizerFields):
    """A model on a cluster, with software, at a sequence length."""

    model: ModelSource = field(metadata=described(MODEL_HELP, "MODEL", is_file=True))
    cluster: ClusterSource = field(metadata=described(CLUSTER_HELP, "CLUSTER", is_file=True))
    _: KW_ONLY
    seq: Whole | None = option("tokens per sequence", "N")
    change: Pairs = option(
        "X times the cluster's compute, memory, memory-bandwidth, bandwidth, inner-bandwidth, "
        "outer-bandwidth or latency", "RESOURCE=X", default=(),
    )  # fmt: skip
    stack: str | None = option("software (default: by family of device)", "NAME")
    cost: str | None = option(COST_HELP.format(COST_DEFAULT), "SOURCE", is_file=True)
    runs: FilePath | None = option(RUNS_HELP, "RUNS", is_file=True)


@dataclass(frozen=True, kw_only=True)
class BatchFields(Request):
    """The global batch: an exact number of sequences, or tokens within a tolerance."""

    batch: Whole | None = option("sequences per step (a plan file has its own)", "N", either="batch")
    batch_tokens: Quantity | None = option(
        "tokens per step, like 16M (a power of two before k or M is binary: 16M is 16 x 2^20), to within "
        "--batch-tolerance: the batch that trains the most tokens per second is taken and stated", "N",
        either="batch",
    )  # fmt: skip
    batch_tolerance: Quantity | None = option(
        "how far a batch may be from the tokens asked for, like 5% (default: 3%)", "SHARE", unit="%"
    )


@dataclass(frozen=True, kw_only=True)
class BatchRangeFields(BatchFields):
    """The global batch, or a range of batches that are compared."""

    batch_range: Range | None = option(
        "compare about A, 2A, 4A ... B sequences per step, by time to the same loss (see --critical-batch)",
        "A:B", either="batch", separator=":",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MemoryFields(Request):
    """How much of a device's memory plans may be predicted to fill."""

    oom_risk: Quantity | None = option(
        "rank only plans whose probability of running out of memory is at most this (default: 5%)", "P",
        either="memory",
    )  # fmt: skip
    headroom: Quantity | None = option(
        "rank only plans that leave this share of usable memory free", "SHARE", either="memory"
    )
