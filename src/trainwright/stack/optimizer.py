"""Optimizers by name: what each keeps of a parameter besides its weight and its gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

GRADIENT_BYTES: Mapping[str, float] = MappingProxyType({"fp32": 4.0, "bf16": 2.0})  # per parameter
ADAM_BYTES = 8.0  # per parameter: both moments in fp32
MASTER_BYTES = 4.0  # per parameter: the weight in fp32


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerChoice:
    """Bytes per parameter of an optimizer's moments, and how it keeps the master weights.

    `end_moment_bytes` are those of embedding and head, where they have another optimizer than the layers.
    With `keeps_remainders` the master weight of a bf16 weight is stored as the 16 bits that it lacks.
    """

    name: str
    moment_bytes: float
    source: str
    moments: int  # how many numbers that is; a host keeps them in fp32
    end_moment_bytes: float | None = None
    keeps_remainders: bool = False

    @property
    def end_bytes(self) -> float:
        """Moments of a parameter of the embedding or the head."""
        return self.moment_bytes if self.end_moment_bytes is None else self.end_moment_bytes

    def master_bytes(self, own_bytes: float, precision: str) -> float:
        """The master weight beyond the weight, of a stack that keeps `own_bytes` of it in 16-bit training."""
        if precision == "fp32":
            return 0.0  # the weight is its own master
        return min(own_bytes, 2.0) if self.keeps_remainders and precision == "bf16" else own_bytes


_PRECISION_AWARE = "NVIDIA/Megatron-LM@d98e8a64, core/optimizer/optimizer_config.py"
_ADAMW = "Loshchilov and Hutter 2019, arXiv:1711.05101: two moments"
_LISTED = (
    OptimizerChoice(name="adamw", moments=2, moment_bytes=ADAM_BYTES, source=_ADAMW),
    OptimizerChoice(
        name="adamw-mu-bf16", moments=2, moment_bytes=6.0,
        source=f"{_ADAMW}, the first one in bf16 (optax, mu_dtype)",
    ),
    OptimizerChoice(name="adamw-bf16", moments=2, moment_bytes=4.0, source=f"{_ADAMW}, in bf16"),
    OptimizerChoice(
        name="adamw-8bit", moments=2, moment_bytes=2.0 * (1.0 + 4.0 / 2048),
        source="Dettmers et al. 2022, arXiv:2110.02861: two moments of 8 bits, an fp32 scale per 2,048",
    ),
    OptimizerChoice(
        name="precision-aware", moments=2, moment_bytes=8.0, keeps_remainders=True,
        source=_PRECISION_AWARE,
    ),
    OptimizerChoice(
        name="precision-aware-bf16", moments=2, moment_bytes=4.0, keeps_remainders=True,
        source=_PRECISION_AWARE,
    ),
    OptimizerChoice(
        name="precision-aware-fp8", moments=2, moment_bytes=2.0, keeps_remainders=True,
        source=_PRECISION_AWARE,
    ),
    OptimizerChoice(
        name="muon", moments=1, moment_bytes=4.0, end_moment_bytes=ADAM_BYTES,
        source="Jordan et al. 2024, and Liu et al. 2025, arXiv:2502.16982: momentum; AdamW at the ends",
    ),
    OptimizerChoice(
        name="adafactor", moments=0, moment_bytes=0.0,
        source="Shazeer and Stern 2018, arXiv:1804.04235: no first moment, the second by row and column",
    ),
    OptimizerChoice(name="sgd", moments=1, moment_bytes=4.0, source="Sutskever et al. 2013: momentum"),
    OptimizerChoice(
        name="lion", moments=1, moment_bytes=4.0, source="Chen et al. 2023, arXiv:2302.06675: momentum"
    ),
)  # fmt: skip
OPTIMIZERS: Mapping[str, OptimizerChoice] = MappingProxyType({each.name: each for each in _LISTED})
