"""What a cluster is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from trainwright.errors import BadInput, UnknownName

DType = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]
DTYPES: tuple[DType, ...] = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")
DTYPE_BYTES: Mapping[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "fp4": 0.5}
Topology = Literal["switch", "ring", "torus2d", "torus3d", "full", "dragonfly"]
TOPOLOGIES: tuple[Topology, ...] = ("switch", "ring", "torus2d", "torus3d", "full", "dragonfly")
# Ways of a collective on one level, and the topologies on which each makes sense.
ALGORITHMS: Mapping[str, tuple[Topology, ...]] = {
    "ring": TOPOLOGIES,
    "tree": ("switch", "full", "dragonfly"),
    "halving-doubling": ("switch", "full", "dragonfly"),
    "direct": ("switch", "full", "dragonfly"),
    "dimension-wise": ("torus2d", "torus3d"),
    "in-network": ("switch", "dragonfly"),
}
Access = Literal["copy", "direct"]
ACCESSES: tuple[Access, ...] = ("copy", "direct")
Placed = Literal["optimizer", "gradients", "weights", "activations"]
SPILL: tuple[Placed, ...] = ("optimizer", "gradients", "weights", "activations")  # coldest first
EVEN: tuple[Placed, ...] = ()  # a spill order of nothing: every tensor lies in all tiers, in proportion
HybridModel = Literal["serial", "concurrent"]
HYBRIDS: tuple[HybridModel, ...] = ("serial", "concurrent")
HOST_SHARE = 0.8  # of the memory that software copies to; the rest is the host's own
# Kinds of links whose collectives were measured. InfiniBand and RoCE are both rdma.
FABRICS = (
    "nvlink2", "nvlink3", "nvlink4", "nvlink5", "pcie", "pcie-bridged", "xgmi", "rdma", "efa", "tcpxo", "tcp",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTier:
    """Memory that a device can reach: the first tier is its own, later ones are slower and larger.

    A device reads and writes a `direct` tier in place, so what does not fit nearer lies there; to a `copy`
    tier only software copies, and it holds what a strategy offloads. `shared` is `device`, or the level of
    the network (or `node`: the innermost) whose devices divide capacity and bandwidth among themselves.

    `capacity_bytes` is the nominal size. What a plan may fill is `usable_bytes`: the total that the runtime
    reports (PyTorch's total capacity, XLA's HBM size), which the driver has taken its part of.
    """

    name: str
    capacity_bytes: float
    bytes_per_s: float
    latency_s: float = 0.0
    access: Access = "copy"
    shared: str = "device"
    update_bytes_per_s: float = 0.0  # of a host's own memory while its CPU updates weights; 0: not stated
    usable_fraction: float | None = None  # of the capacity; None: not stated, so all of it

    @property
    def usable_bytes(self) -> float:
        """What the runtime reports of the capacity; all of it where that is not stated."""
        return self.capacity_bytes * (1.0 if self.usable_fraction is None else self.usable_fraction)


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
    (all six of a 3D torus). A `size` of 0 means as many as needed. Of the `algorithms` that its library has
    the cheapest is taken for every collective; without any they are those that the constants were fitted
    with: one ring through all levels, a tree, level by level, and reduction in switches that can.
    """

    name: str
    size: int
    bytes_per_s: float
    latency_s: float
    topology: Topology = "switch"
    in_network_reduction: bool = False
    oversubscription: float = 1.0
    algorithms: tuple[str, ...] = ()
    fabric: str = ""  # the kind of link, whose constants its collectives have; "": by its place

    def __post_init__(self) -> None:
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise UnknownName(f"level {self.name}: algorithm", name, ALGORITHMS)
            if self.topology not in ALGORITHMS[name]:
                raise BadInput(
                    f"level {self.name}: algorithm", name, f"does not run on topology {self.topology}",
                    f"use it on {', '.join(ALGORITHMS[name])}",
                )  # fmt: skip
            if name == "in-network" and not self.in_network_reduction:
                raise BadInput(
                    f"level {self.name}: algorithm", name, "its switches do not reduce",
                    "set in_network_reduction = true",
                )  # fmt: skip
        if self.algorithms and set(self.algorithms) <= {"tree", "in-network"}:
            raise BadInput(
                f"level {self.name}: algorithms", ", ".join(self.algorithms), "cannot gather or scatter",
                "add ring, halving-doubling, direct or dimension-wise",
            )  # fmt: skip


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
    spill: tuple[Placed, ...] = SPILL  # what leaves the device's own memory first; EVEN: all alike
    hybrid: HybridModel = "serial"  # whether tiers are read in turn or at the same time

    def __post_init__(self) -> None:
        if self.count < 1:
            raise BadInput("cluster", self.name, "needs at least one device", 'write it like "h100:512"')
        if self.spill and sorted(self.spill) != sorted(SPILL):
            raise BadInput(
                "cluster spill", ", ".join(self.spill), f"is not an order of {', '.join(SPILL)}",
                "name each once",
            )  # fmt: skip

    @property
    def tiers(self) -> tuple[MemoryTier, ...]:
        """The memory tiers as one device has them: of shared ones its part of capacity and bandwidth."""
        return tuple(self._share(tier) for tier in self.device.memory)

    @property
    def expanded(self) -> tuple[MemoryTier, ...]:
        """The tiers beyond a device's own that it reads in place, nearest first."""
        return tuple(tier for tier in self.tiers[1:] if tier.access == "direct")

    @property
    def host_tier(self) -> MemoryTier | None:
        """The tier that a strategy's offloading copies to."""
        return next((tier for tier in self.tiers[1:] if tier.access == "copy"), None)

    @property
    def host_room_bytes(self) -> float:
        """What a device may keep on its host."""
        tier = self.host_tier
        return HOST_SHARE * tier.capacity_bytes if tier else 0.0

    @property
    def capacity_bytes(self) -> float:
        """What a device can hold without copies: in its usable memory and in expanded tiers."""
        return self.device.memory[0].usable_bytes + sum(tier.usable_bytes for tier in self.expanded)

    def _share(self, tier: MemoryTier) -> MemoryTier:
        if tier.shared == "device":
            return tier
        sharers = self._inside(tier)
        return replace(
            tier, capacity_bytes=tier.capacity_bytes / sharers, bytes_per_s=tier.bytes_per_s / sharers,
            update_bytes_per_s=tier.update_bytes_per_s / sharers,
        )  # fmt: skip

    def _inside(self, tier: MemoryTier) -> int:
        """Devices that share a tier: those of the level that it names."""
        if tier.shared == "node":
            return self.node_size
        inside = 1
        for level in self.network.levels:
            inside = inside * level.size if level.size else self.count
            if level.name == tier.shared:
                return min(inside, self.count)
        raise BadInput(
            f"cluster {self.name}: memory {tier.name}: shared", tier.shared, "is no level of its network",
            f"use device, node, {', '.join(level.name for level in self.network.levels)}",
        )  # fmt: skip

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
