"""What a cluster is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from trainwright.errors import BadInput

DType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]
DTYPES: tuple[DType, ...] = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
DTYPE_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5}
Topology = Literal["switch", "ring", "torus2d", "torus3d", "full", "dragonfly"]
TOPOLOGIES: tuple[Topology, ...] = ("switch", "ring", "torus2d", "torus3d", "full", "dragonfly")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTier:
    """Memory that a device can reach: the first tier is its own, later ones are slower and larger."""

    name: str
    capacity_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as its datasheet states it."""

    name: str
    family: str  # devices of one family share efficiency constants until they have data of their own
    peak_flops_per_s: Mapping[str, float]  # by dtype, dense
    memory: tuple[MemoryTier, ...]
    buffer_bytes: float
    compute_units: int  # SMs, CUs, cores: what tiles are scheduled on
    idle_w: float
    peak_w: float
    price_per_hour: float
    network: str  # the network entry that this device comes with unless told otherwise
    source: str

    def __post_init__(self) -> None:
        if not self.memory:
            raise BadInput(f"device {self.name}", "memory", "needs at least one tier", "add [[memory]]")
        if not {"bf16", "fp16"} & set(self.peak_flops_per_s):
            raise BadInput(f"device {self.name}", "peak", "needs a bf16 or fp16 rate", "add bf16 to [peak]")

    @property
    def usual_precision(self) -> str:
        """The 16-bit precision that it has; of a CPU, what it was profiled in."""
        if self.family == "cpu":
            return "fp32"
        return "bf16" if "bf16" in self.peak_flops_per_s else "fp16"

    def peak(self, dtype: str) -> float:
        """Peak rate of `dtype`, or of the next wider dtype that the device has."""
        for candidate in _WIDER[dtype]:
            if candidate in self.peak_flops_per_s:
                return self.peak_flops_per_s[candidate]
        raise BadInput(f"device {self.name}", dtype, "no rate for this dtype", "add it to [peak]")


_WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp4", "fp8", "bf16", "fp16"),
    "fp8": ("fp8", "bf16", "fp16"),
    "bf16": ("bf16", "fp16"),
    "fp16": ("fp16", "bf16"),
    "tf32": ("tf32", "fp32"),
    "fp32": ("fp32", "tf32"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of the network, inner to outer: `size` groups of the level below, joined by links.

    `bytes_per_s` is per device and direction, as the datasheet states it, summed over its links at this level
    (all six of a 3D torus). A `size` of 0 means as many as needed.
    """

    name: str
    size: int
    bytes_per_s: float
    latency_s: float
    topology: Topology = "switch"
    in_network_reduction: bool = False
    oversubscription: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Levels from the inside of a node outwards, and what the host around a device adds."""

    name: str
    levels: tuple[Level, ...]
    host_w: float  # power of host, fans and NICs per device
    host_bytes_per_s: float  # device-to-host copy, for offload
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`count` devices of one kind on a network whose levels are sized to hold them."""

    name: str
    device: Device
    network: Network
    count: int
    pue: float = 1.2
    at_once: int = 0  # devices that can compute at the same time, where they share cores; 0: all

    def __post_init__(self) -> None:
        if self.count < 1:
            raise BadInput("cluster", self.name, "needs at least one device", 'write it like "h100:512"')

    @property
    def crowding(self) -> float:
        """How many times as long compute takes when all devices are at it."""
        return max(self.count / self.at_once, 1.0) if self.at_once else 1.0

    @property
    def node_size(self) -> int:
        """Devices inside the innermost level."""
        return min(self.network.levels[0].size or self.count, self.count)

    @property
    def levels(self) -> tuple[Level, ...]:
        """The network's levels with the open one sized so that all devices are joined."""
        sized: list[Level] = []
        for level in self.network.levels:
            inside = prod(each.size for each in sized)
            if inside >= self.count:
                break
            needed = -(-self.count // inside)
            sized.append(replace(level, size=min(level.size, needed) if level.size else needed))
        joined = prod(each.size for each in sized)
        if joined < self.count:
            raise BadInput(
                "cluster",
                self.name,
                f"its network joins at most {joined} devices",
                "add or enlarge the outer level",
            )
        return tuple(sized)
