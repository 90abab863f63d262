"""What one release of a training stack can run, as stated in its catalog entry."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from trainwright.stack.optimizer import GRADIENT_BYTES, OPTIMIZERS
from trainwright.stack.state import StateLayout

AXES = ("tp", "cp", "pp", "vpp", "ep", "etp")  # parallel axes besides dp
_NO_BYTES: Mapping[str, Mapping[str, float]] = {}

# The conditions on the number of microbatches M that a schedule may have, for p stages and v chunks a stage.
MICROBATCH_RULES = MappingProxyType(
    {
        "any": "",
        "stages": "M must be at least the number of stages",
        "multiple": "M must be a multiple of pp",
        "rounds": "M must divide into max(1, M // pp) equal rounds",
    }
)
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sequence_parallel": ("never", "optional", "always"),
        "kv_heads": ("divide", "replicate"),
        "expert_ranks": ("stage", "dp"),
        "layer_split": ("any", "even"),
        "recompute_layers": ("every", "stage", "chunk"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """The values of each knob that a release has settings for, and which of them go together.

    The defaults describe software without limits. `stack@release` names an entry; `target` is the format
    that `trainwright export` writes for it. `weight_bytes` has, by precision and device family, the bytes of
    a weight of a layer's linear operators where they are not 16 bits.
    """

    stack: str = "generic"
    release: str = ""
    date: str = ""
    source: str = ""
    target: str = ""
    axes: tuple[str, ...] = AXES
    orders: tuple[str, ...] = ()  # rank orders, innermost axis first; none stated: any
    fsdp_orders: tuple[str, ...] = ()  # those with ZeRO-2 and 3; none stated: the same
    sequence_parallel: str = "optional"  # with tp > 1
    usual_sequence_parallel: bool = True  # what a run that does not state it is taken to have, if optional
    kv_heads: str = "replicate"  # whether tp may exceed the number of key-value heads
    expert_ranks: str = "stage"  # experts spread over all ranks of a stage, or over dp only
    etp_is_tp: bool = False  # experts are split over tp ranks, all of them or none
    equal_expert_replicas: tuple[str, ...] = ()  # orders in which experts and dense layers have one dp degree
    cp_kinds: tuple[str, ...] = ("ring", "allgather", "ulysses")
    window_cp_kinds: tuple[str, ...] = ("ring", "allgather", "ulysses")  # with sliding windows
    sink_cp_kinds: tuple[str, ...] = ("ring", "allgather", "ulysses")  # with attention sinks
    square_ring: bool = False  # a ring needs an even cp whose square divides the sequence
    cp_shards: bool = False  # context parallelism is part of the sharded data parallelism: needs ZeRO-2 or 3
    ep_shards: bool = False  # so is expert parallelism: shard groups are whole groups of experts
    schedules: tuple[str, ...] = ("gpipe", "1f1b", "interleaved", "zb")
    microbatches: Mapping[str, str] = field(default_factory=dict)  # rule by schedule
    most_vpp: int = 64
    unlisted_vpp: int = 0  # chunks a stage where no model is known whose layers could be listed; 0: any
    layer_split: str = "any"  # stages of unequal numbers of layers can be stated
    zeros: tuple[int, ...] = (0, 1, 2, 3)
    usual_zero: int = 1  # of a run that does not state it
    pipeline_zeros: tuple[int, ...] = (0, 1, 2, 3)  # with pp > 1
    expert_zeros: tuple[int, ...] = (0, 1, 2, 3)  # with ep > 1
    hybrid_zeros: tuple[int, ...] = (1, 2, 3)  # whose shards may span fewer than all ranks
    hybrid_whole_cp: bool = False  # shard groups are whole groups of context parallelism
    replicated_alone: bool = False  # replicas without sharding go with no other parallel axis
    fsdp_alone: tuple[str, ...] = ()  # device families with advice against tp or cp beside ZeRO-2 and 3
    reduces_each_microbatch: tuple[int, ...] = (2, 3)  # ZeRO stages
    recomputes: tuple[str, ...] = ()  # sets of modules that it has a word for; none stated: any
    usual_recomputes: tuple[str, ...] = ()  # of a run that does not state it; none stated: `recomputes`
    recompute_modules: tuple[str, ...] = ()  # modules of which it recomputes any set
    fused_norms: bool = False  # norms are apart from linears only before latent attention and experts
    recompute_layers: str = "stage"  # what a number of layers counts in, or that there is none
    recompute_zeros: tuple[int, ...] = (0, 1, 2, 3)  # ZeRO stages that full recomputation goes with
    offloads: tuple[str, ...] = ("none", "optimizer", "activations", "both")
    optimizer_offload_zeros: tuple[int, ...] = (0, 1, 2, 3)
    offload_fp8_keeps: tuple[str, ...] = ()  # modules not recomputed with fp8 and an offloaded optimizer
    counts_offloaded_layers: bool = False  # activations go to the host by a number of layers
    activation_offload_pipeline: bool = True  # with pp > 1
    activation_offload_recomputes: tuple[str, ...] = ()  # recomputations that it goes with; none stated: any
    precisions: tuple[str, ...] = ("fp32", "bf16", "fp16", "fp8", "fp4")
    unaccumulated_precisions: tuple[str, ...] = ()  # that exclude gradient accumulation
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)  # the first is what it runs unless stated
    sharded_optimizers: tuple[str, ...] = ()  # of these, that need ZeRO-1 or above
    fsdp_optimizers: tuple[str, ...] = tuple(OPTIMIZERS)  # that go with ZeRO-2 and 3
    offload_optimizers: tuple[str, ...] = tuple(OPTIMIZERS)  # that update on the host
    plain_sgd: bool = False  # its sgd has no momentum
    grad_dtypes: tuple[str, ...] = tuple(GRADIENT_BYTES)  # of 16-bit training, accumulated and reduced
    weight_bytes: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: _NO_BYTES)
    overlaps: tuple[bool, ...] = (True, False)
    overlapped_pp: int = 0  # most stages that interleave only with overlapped sends
    tied_pipeline: bool = True  # tied embeddings with pp > 1
    models: tuple[str, ...] = ()  # the catalog models that it ships; none stated: by features
    kinds: tuple[str, ...] = ()  # kinds of models that it trains; none stated: any
    lacks: tuple[str, ...] = ()  # model features that it has no setting for
    expandable_segments: bool = False  # what is exported for it sets the allocator so
    fused_loss_since: str = ""  # date from which its loss keeps no fp32 copies of logits; "": it keeps them
    flash_attention: int = 3  # version of its fused attention kernels, or cuDNN's of that age
    recipes_since: str = ""  # date from which runs are described by the catalog's recipes for it; "": none
    state: StateLayout = field(default_factory=StateLayout)

    def has_fused_loss(self, date: str = "") -> bool:
        """Whether the loss is fused in this release, or in the software of an ISO date."""
        return bool(self.fused_loss_since) and (date or self.date) >= self.fused_loss_since

    @property
    def runs_sequence_parallel(self) -> bool:
        """Whether a run with tensor parallelism that does not state it has sequence parallelism."""
        fixed = {"never": False, "always": True}
        return fixed.get(self.sequence_parallel, self.usual_sequence_parallel)

    @property
    def title(self) -> str:
        """Name and release, as messages state them."""
        return f"{self.stack} {self.release}".strip()


ANY = Capability()


def missing_features(
    capability: Capability, name: str, kind: str, features: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """What of a model (its catalog name, its kind, its features) a stack does not have, and why."""
    if capability.models and name not in capability.models:
        yield "name", f"{capability.title} has {', '.join(capability.models)}"
    if capability.kinds and kind not in capability.kinds:
        yield "kind", f"{capability.title} trains {', '.join(capability.kinds)} models, not {kind}"
    for feature in features:
        if feature in capability.lacks:
            yield feature, f"{capability.title} has no setting for it"
