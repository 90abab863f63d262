"""The fitted constants of a prediction: what devices reach of their datasheets, what stacks add to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainwright.cost.fabric import DEFAULTS, Fabric
from trainwright.cost.kernels import Kernels
from trainwright.cost.table import CollectiveTable
from trainwright.stack.capability import ANY, Capability
from trainwright.stack.optimizer import OptimizerChoice

# What a figure of memory counts: tensors (torch's allocated), with the allocator's cache (reserved), or all
# that the driver shows (device).
MEMORY_FIGURES = ("allocated", "reserved", "device")
FUSED_LOGITS_BYTES = 4.0  # 16-bit logits and their 16-bit gradient
# What the allocator loses of allocated bytes with segments that grow (PYTORCH_CUDA_ALLOC_CONF): 2 MiB pages.
# A job of 58.8 GB allocated ran out of 80 GB without them and ran with them (Megatron-Bridge's memory guide).
EXPANDABLE_FRAGMENTATION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What a device achieves of its datasheet, fitted to published kernels and runs.

    Fractions are of the datasheet's rate. `basis` says what the numbers rest on: the device itself, its
    family, or the class of all accelerators.
    """

    gemm: float = 0.75  # matrix products of large shapes, 16 bit
    gemm_fp8: float = 0.65
    gemm_fp4: float = 0.50
    depth: float = 64.0  # contracted length at which a product reaches half of its rate
    tile_penalty: float = 0.3  # rate lost by small output tiles
    kernel_s: float = 3e-6  # fill and drain of a kernel
    group_s: float = 0.0  # the same of each further expert's product in a grouped one
    memory: float = 0.80  # of memory bandwidth, streaming kernels
    attention_forward: float = 0.55  # fused attention, of the 16-bit peak, causal FLOPs
    attention_backward: float = 0.42
    attention_length: float = 0.0  # keys of a query at which fused attention reaches half of its rate
    attention_fa2: float = 1.0  # rate of FlashAttention-2, of the device's own kernels (cuDNN, version 3)
    inner_link: float = (
        0.0  # of the innermost level's bandwidth, where one's own machine says; 0: its fabric's
    )
    outer_link: float = 0.0  # of the outer levels' bandwidth, the same
    host_link: float = 0.7  # of the bandwidth to the host, pinned copies beside other traffic
    runs: int = (
        0  # measured runs that the numbers rest on; 0: kernels of the device, or its family's or class's
    )
    basis: str = "class"
    buffered: bool = False  # products read operands again that the on-chip buffer does not hold
    kernels: Kernels | None = None  # times measured on a machine, instead of the fractions above
    table: CollectiveTable | None = None
    fabrics: Mapping[str, Fabric] = field(default_factory=lambda: DEFAULTS)  # of all networks, by name


def level_at(levels: Mapping[str, float], release: str) -> float:
    """The level of a release by month: its own, else of the last one before it, else of the first one."""
    known = sorted(levels)
    before = [each for each in known if not release or each <= release]
    if before:
        return levels[before[-1]]
    return levels[known[0]] if known else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The software that runs the plan: its kernels and overheads, what it overlaps, what it keeps."""

    name: str
    attention: Literal["flash", "unfused"] = "flash"
    flash_attention: int = 3  # version of its fused kernels, or cuDNN of its age; 2 has Ampere's instructions
    pace: float = 1.0  # share of the kernels' rate that is kept inside a training step
    # Factors of the pace: by device family (`hopper`), and by family and precision (`hopper fp8`) ...
    family_levels: Mapping[str, float] = field(default_factory=dict)
    release_levels: Mapping[str, float] = field(default_factory=dict)  # ... and by month of release
    # Share of the pace that grouped products and permutations of tokens keep, and its factors by month.
    expert_pace: float = 1.0
    expert_release_levels: Mapping[str, float] = field(default_factory=dict)
    release: str = ""  # the month of the software, as `2026-02`; "": the newest that is known
    traffic: float = 1.0  # memory traffic of element-wise work, relative to one fused pass
    cast_bytes: float = 4.0  # moved per element that a linear of few bits casts; less where casts are fused
    op_s: float = 8e-6  # host time to launch one operator
    route_launches: float = 0.0  # of operators around the permutation of routed tokens, in each direction
    expert_launches: float = 0.0  # per expert of a rank and product; 0: one grouped kernel for all
    expert_bias_bytes: float = 0.0  # moved per result of an expert's product that has a bias; 0: fused
    cuda_graphs: tuple[str, ...] = ()  # captured: attn, moe_router, moe_preprocess, or full_iteration
    step_s: float = 0.01  # per step: data, logging, gradient norm, synchronisation
    pipeline_tp_s: float = 0.0  # lost per layer, microbatch and tensor-parallel rank beside pending sends
    pipeline_stall_s: float = (
        0.0  # lost per microbatch of a pipeline on 64 nodes; with the eighth power below
    )
    send_s: float = 20e-6  # host time around one send to the next stage and its receive
    tp_overlap: float = (
        0.3  # share of backward tensor-parallel communication that hides behind weight gradients
    )
    tp_forward_overlap: float = 0.0  # share of the forward one that hides behind pieces of its own products
    dp_overlap: float = (
        0.8  # share of gradient reductions (and of ZeRO-3 gathers) that may hide behind compute
    )
    zero_overlap: float = 0.5  # the same for the reductions and gathers of ZeRO-1 and 2
    zero_layer_s: float = 0.0  # per layer and step of ZeRO-1 and 2: many small collectives instead of one
    outer_share: float = 1.0  # of the outer links' achieved bandwidth that its collectives reach
    outer_extra_s: float = 0.0  # latency per hop on outer links beyond the fabric's
    pp_overlap: float = 0.0
    ep_overlap: float = 0.0  # share of exchanges with experts that hides behind another microbatch
    ep_overlap_share: float = 0.8  # the same in a run that overlaps them (combined 1F1B)
    ep_dedupe: bool = False  # a token crosses to a node once, however many of its experts are there (DeepEP)
    cp_overlap: float = 0.7
    interference: float = 0.15  # seconds that compute loses per second of communication behind it
    gradient_bytes: float = 4.0  # per parameter, as accumulated
    optimizer_bytes: float = 12.0  # per parameter: main weights and two moments
    fp16_gradient_bytes: float = 2.0  # both, in fp16 runs
    reduce_bytes: float = 4.0  # per parameter on the wire of a gradient reduction
    optimizer: OptimizerChoice | None = None  # what a user states instead of the stack's own AdamW
    grad_dtype: str = ""  # as stated, of gradient_bytes and reduce_bytes; "": the stack's own
    logits_bytes: float = 10.0  # per logit alive at the peak: 16-bit, fp32 copy, softmax or gradient
    fused_loss: bool = False  # the loss reads 16-bit logits and writes their gradient: no fp32 copies
    splits_logits: bool = True  # logits stay split over tensor-parallel ranks until the loss
    context_bytes: float = 2.5e9  # driver, libraries and their workspaces
    communicator_bytes: float = 0.0  # of one communicator; a device has one per parallel axis
    reports: str = "device"  # what its users quote as memory, one of MEMORY_FIGURES
    balanced_stages: bool = False  # stages are cut by work, the head counted, not by layers
    activations: float = 1.0  # kept for backward, relative to fused kernels that keep each tensor once
    quantized_inputs: bool = False  # in fp8 and fp4, linears keep their inputs for backward quantized
    gathered_inputs: float = (
        0.0  # share of inputs gathered over tensor-parallel ranks that are kept whole (without a pipeline)
    )
    expert_imbalance: float = 1.0  # routed tokens of the rank that has most, of the mean
    stated_imbalance: float = 0.0  # what a user states instead; 0: the stack's own
    workspace: float = 1.0  # activations of the layer being worked on, relative to what it saves
    fragmentation: float = 0.06  # of the allocated bytes
    expandable_segments: bool = False  # the allocator's segments grow: it loses less
    capability: Capability = ANY  # what it can run
    scatter: float = 0.12  # deviation of the logarithm of measured over predicted time within a source
    runs: int = 0  # measured runs that the numbers rest on
    basis: str = "stack"

    def pace_on(self, family: str, precision: str) -> float:
        """The pace on a family of devices at a precision, of this release.

        In 16 bits at most 1: the rates of those kernels are published, and no step beats them.
        """
        level = self.family_levels.get(family, 1.0) * self.family_levels.get(f"{family} {precision}", 1.0)
        pace = self.pace * level * level_at(self.release_levels, self.release)
        return pace if precision in ("fp8", "fp4") else min(pace, 1.0)

    @property
    def routed_pace(self) -> float:
        """The share of the pace that grouped products and permutations of tokens keep, in this release."""
        return self.expert_pace * level_at(self.expert_release_levels, self.release)

    @property
    def live_logits_bytes(self) -> float:
        """Per logit alive at the peak, with the loss as this stack computes it."""
        return min(self.logits_bytes, FUSED_LOGITS_BYTES) if self.fused_loss else self.logits_bytes

    @property
    def routed_imbalance(self) -> float:
        """Routed tokens of the rank that has most, of the mean: as stated, or the stack's own."""
        return self.stated_imbalance or self.expert_imbalance

    @property
    def expert_slowdown(self) -> float:
        """How much longer experts and their all-to-alls take than with the stack's own imbalance."""
        return self.routed_imbalance / self.expert_imbalance

    @property
    def reserve_share(self) -> float:
        """What the allocator loses, of allocated bytes."""
        lost = self.fragmentation
        return min(lost, EXPANDABLE_FRAGMENTATION) if self.expandable_segments else lost


# Software of recommenders (PyTorch with fused tables). Its constants are stated, not fitted: no published run
# tells its kernels apart. Launches of an eager framework, and half a millisecond for input and its transfer.
TORCHREC = Stack(
    name="torchrec",
    step_s=0.5e-3,
    interference=0.0,
    tp_overlap=0.0,
    basis="a statement, not of measurements",
)

# The runtime's own software: gradients and new weights travel beside compute, all else in the open.
OWN = Stack(
    name="trainwright", dp_overlap=1.0, zero_overlap=1.0, tp_overlap=0.0, cp_overlap=0.0, interference=0.0,
    step_s=0.0, send_s=0.0, op_s=0.0,
)  # fmt: skip
