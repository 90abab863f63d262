"""What Megatron-LM's own checks look at: flags, model, devices and environment of one job."""

from dataclasses import dataclass

from trainwright.errors import BadInput
from trainwright.export.pipeline_layout import PipelineLayout, parse_layout
from trainwright.export.reading.launch_flags import Flags
from trainwright.export.reading.megatron_stages import ACCOUNTED, ENDS
from trainwright.model.architecture import Architecture

_LAYOUT = "pipeline-model-parallel-layout"
_PER_CHUNK, _CHUNKS = "num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"
BEFORE_BLACKWELL = ("volta", "turing", "ampere", "ada", "hopper")


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronJob:
    """A job as Megatron-LM's flags state it; 0 and "" stand for what is not known.

    `knows_environment` says that a variable which `flags.environment` lacks is unset.
    """

    flags: Flags
    world: int = 0
    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    seq: int = 0
    tied: bool = False
    device_family: str = ""
    knows_environment: bool = False

    def has(self, name: str) -> bool:
        """Whether a flag is there."""
        return self.flags.has(name)

    def word(self, name: str, default: str = "") -> str:
        """A flag's first word; the default if the text does not settle it."""
        words = self.flags.values.get(name, ())
        return words[0].text or default if words else default

    def words(self, name: str) -> list[str]:
        """All words of a flag that the text settles."""
        return [each.text for each in self.flags.values.get(name, ()) if each.text is not None]

    def count(self, name: str, default: int = 0) -> int:
        """A flag's whole number; the default if the text does not settle it."""
        text = self.word(name)
        return int(text) if text.isdecimal() and len(text) < 16 else default

    @property
    def tp(self) -> int:
        """Tensor-parallel degree."""
        return max(self.count("tensor-model-parallel-size", 1), 1)

    @property
    def pp(self) -> int:
        """Pipeline stages."""
        return max(self.count("pipeline-model-parallel-size", 1), 1)

    @property
    def cp(self) -> int:
        """Context-parallel degree."""
        return max(self.count("context-parallel-size", 1), 1)

    @property
    def ep(self) -> int:
        """Expert-parallel degree."""
        return max(self.count("expert-model-parallel-size", 1), 1)

    @property
    def etp(self) -> int:
        """Tensor-parallel degree of experts: that of the rest unless it is stated."""
        return max(self.count("expert-tensor-parallel-size", self.tp), 1)

    @property
    def weight_shards(self) -> int:
        """Shards of each tensor-parallel part of a weight (generalized tensor parallelism)."""
        return max(self.count("tensor-parallel-num-weight-shards", self.tp) // self.tp, 1)

    @property
    def sp(self) -> bool:
        """Sequence parallelism, which is switched off without tensor parallelism."""
        return self.has("sequence-parallel") and self.tp > 1

    @property
    def layout(self) -> PipelineLayout | None:
        """The layout that is stated, if it is one."""
        if not self.word(_LAYOUT):
            return None
        try:
            return parse_layout(self.word(_LAYOUT), f"--{_LAYOUT}")
        except BadInput:
            return None

    @property
    def accounted(self) -> int:
        """Layers that embedding and loss count for."""
        return sum(self.has(name) for name in ACCOUNTED)

    @property
    def vpp(self) -> int:
        """Chunks of a stage, 1 if they are not interleaved."""
        if self.layout is not None:
            return max(len(self.layout.chunks) // self.pp, 1)
        each = self.count(_PER_CHUNK)
        if each and not self.has(_CHUNKS):
            return max((self.layers + self.accounted) // self.pp // each, 1)
        return max(self.count(_CHUNKS, 1), 1)

    @property
    def states_chunks(self) -> bool:
        """Whether a flag states chunks of stages."""
        return self.has(_PER_CHUNK) or self.has(_CHUNKS)

    @property
    def uneven_ends(self) -> tuple[int | None, int | None]:
        """Layers of the first and of the last stage, where they are stated."""
        first, last = (self.count(name) if self.has(name) else None for name in ENDS)
        return first, last

    @property
    def megatron_fsdp(self) -> bool:
        """Whether Megatron-FSDP shards the model."""
        return self.has("use-megatron-fsdp") or self.has("use-custom-fsdp")

    @property
    def overlaps_experts(self) -> bool:
        """Whether all-to-alls of experts overlap with compute."""
        return self.has("overlap-moe-expert-parallel-comm")

    @property
    def recompute(self) -> str:
        """How activations are recomputed: none, selective or full."""
        if self.has("recompute-activations"):
            return "selective"
        return self.word("recompute-granularity", "none")

    @property
    def recompute_modules(self) -> list[str]:
        """Modules of selective recomputation."""
        if self.recompute != "selective":
            return []
        return self.words("recompute-modules") or ["core_attn"]

    @property
    def cuda_graph(self) -> str:
        """How CUDA graphs are made, also by flags of older releases."""
        older = "transformer_engine" if self.has("external-cuda-graph") else "none"
        older = "local" if self.has("enable-cuda-graph") else older
        return self.word("cuda-graph-impl", older)

    @property
    def fp8_recipe(self) -> str:
        """The recipe of fp8, none without it."""
        on = any(self.has(name) for name in ("fp8-format", "fp8-hybrid", "fp8-e4m3"))
        return self.word("fp8-recipe", "delayed") if on else ""

    @property
    def replicas(self) -> int:
        """Data-parallel replicas, 0 if the degrees do not divide the devices."""
        inside = self.tp * self.pp * self.cp * self.weight_shards
        return self.world // inside if self.world % inside == 0 else 0

    @property
    def microbatches(self) -> int:
        """Microbatches of a step, 0 if they are not known."""
        unit = self.replicas * max(self.count("micro-batch-size", 1), 1)
        batch = self.count("global-batch-size")
        return batch // unit if unit and batch % unit == 0 else 0


def job_of(
    flags: Flags,
    arch: Architecture | None,
    world: int,
    device_family: str = "",
    *,
    knows_environment: bool = False,
) -> MegatronJob:
    """The job of some flags, with the model as it was read or stated."""
    seq = flags.values.get("seq-length", ())
    text = seq[0].text if seq else None
    length = int(text) if text and text.isdecimal() and len(text) < 16 else 0
    if arch is None:
        return MegatronJob(
            flags=flags, world=world, seq=length, device_family=device_family,
            knows_environment=knows_environment,
        )  # fmt: skip
    return MegatronJob(
        flags=flags, world=world, layers=arch.layers, heads=arch.heads, kv_heads=arch.kv_heads,
        experts=arch.experts, seq=length or arch.max_seq, tied=arch.tied, device_family=device_family,
        knows_environment=knows_environment,
    )  # fmt: skip
