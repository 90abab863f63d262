"""The requests for studies: published comparisons, reproduced by simulation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.api.fields import FilePath, Quantity, Request, Whole, option
from trainwright.api.subject_fields import COST_HELP

Names = str | Sequence[str]  # a list, or text with commas
Counts = str | Sequence[int]


@dataclass(frozen=True, kw_only=True)
class ScalingStudyRequest(Request):
    """What do more devices give?"""

    model: str | None = option("the subject (default: llama2-7b)", "MODEL")
    device: str | None = option(
        "of its clusters, like h100 or h100@aws-p5, or that of a cluster file (default: h100)", "DEVICE"
    )
    devices: Counts | None = option(
        "scales, doubled from A to B, or as a list A,B,C (default: 8:2048)", "A:B", separator=","
    )
    seq: Whole | None = option("tokens of a sequence (default: 4096)", "N")
    local_batch: Whole | None = option("sequences for each device in weak scaling (default: 2)", "N")
    batch: Counts | None = option(
        "sequences a step in strong scaling (default: 32,1024)", "N,M", separator=","
    )
    stack: str | None = option("the software (default: generic)", "STACK")
    cost: str | None = option(
        COST_HELP.format("those of DEVICE if it is such a file, else calibrated"), "SOURCE"
    )
    models: Names | None = option(
        "to compare by size (default: Llama-2 and its kin, 1.1B to 70B)", "M,N", separator=","
    )
    contexts: Counts | None = option("lengths to compare (default: 2048 to 32768)", "N,M", separator=",")
    generations: Names | None = option(
        "devices to compare (default: v100,a100,h100,b200)", "D,E", separator=","
    )


@dataclass(frozen=True, kw_only=True)
class CommunicationStudyRequest(Request):
    """What share of time is communication, in models and machines to come?"""

    profile: FilePath | None = option("a cluster file with a profile (default: a node of MI210)", "FILE")
    cost: str | None = option("the same as projected:FILE, as other commands write it", "SOURCE")
    moe: str | None = option("E experts, K a token: all-to-alls (like 64:2)", "E:K")
    sequence_parallel: bool = option("norms and residuals split, too", default=False)
    pipeline: str | None = option("stages, and microbatches (default: 4 a stage)", "P[:M]")
    fsdp: bool = option("sharded weights: 1.5x the data-parallel volume", default=False)
    inference: bool = option("forward only", default=False)
    in_network_reduction: bool = option("switches sum", default=False)
    interference: Quantity | None = option(
        "seconds lost for each that compute and communication share (default: the profile's)", "X"
    )
    offload_communication: bool = option("no interference", default=False)
    replicas: Whole | None = option("of data parallelism (default: 16)", "N")


@dataclass(frozen=True, kw_only=True)
class ClusterDesignStudyRequest(Request):
    """Which cluster, with which parallelization?"""

    model: str | None = option("a transformer (default: transformer-1t)", "MODEL")
    recommender: str | None = option("a DLRM (default: dlrm-1.2t)", "MODEL")
    devices: Whole | None = option("of every cluster, a power of two (default: 1024)", "N")
    batch: Whole | None = option("sequences a step, a power of two (default: 256)", "N")
    clusters: Names | None = option(
        "to compare: devices like h100@dgx-h100, or TOML files of clusters", "C,D", separator=","
    )


@dataclass(frozen=True, kw_only=True)
class FlexiblePlansStudyRequest(Request):
    """What do non-uniform plans gain over known systems?"""

    model: Names = option("like swin (default: all)", "FAMILY", default=())
    device: Names = option("v100 or h100 (default: both)", "NAME", default=())
    devices: Counts | None = option("how many (default: 8,16,32)", "N,N", separator=",")
    sensitivity: bool = option(
        "other memory and links on V100s instead, for one N (default: 8)", default=False
    )
    cost: str | None = option(COST_HELP.format("calibrated"), "SOURCE")


@dataclass(frozen=True, kw_only=True)
class SubnetworksStudyRequest(Request):
    """When are independent subnetworks as good as what users would choose instead?"""

    quick: bool = option("fewer methods, steps and rates: a minute instead of several", default=False)
    data: FilePath | None = option(
        "the MLP's part, on samples of yours: arrays `inputs` (a row a sample) and `labels`", "FILE.npz",
        is_file=True,
    )  # fmt: skip


STUDY_REQUESTS: Mapping[str, type[Request]] = {
    "flexible-plans": FlexiblePlansStudyRequest,
    "comp-vs-comm": CommunicationStudyRequest,
    "cluster-design": ClusterDesignStudyRequest,
    "scaling": ScalingStudyRequest,
    "subnetworks": SubnetworksStudyRequest,
}
