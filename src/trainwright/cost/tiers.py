"""Memory beyond a device's own: which tensors lie in it, and what reading them there adds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster, HybridModel
from trainwright.cost.constants import Efficiency

Array = NDArray[np.float64]
# What tensors are told apart by: activations that wait for backward, and those that are worked on. Tables
# that are looked up in, with the state of their rows, leave the device first: a step meets few rows.
TABLES = "tables"
CLASSES = (TABLES, "optimizer", "gradients", "weights", "kept", "working")
Shares = Mapping[str, tuple[Array, ...]]  # of each class, the share of its bytes in each expanded tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A device's own memory and its expanded tiers as kernels see them.

    Figures may be arrays over clusters, as those of a fleet are.
    """

    own_bytes: float
    own_bytes_per_s: float  # achieved, as the others
    names: tuple[str, ...]
    tier_bytes: tuple[float, ...]
    tier_bytes_per_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    coldest: tuple[str, ...]  # classes in the order in which they leave the device; none: all alike
    hybrid: HybridModel


def build_expansion(cluster: Cluster, efficiency: Efficiency) -> Expansion | None:
    """What a cluster's devices can reach beyond their own memory; None if that is nothing.

    Expanded tiers reach the same share of their datasheet's bandwidth as the device's own memory.
    """
    own, tiers = cluster.tiers[0], cluster.expanded
    if not tiers:
        return None
    wide = {"activations": ("kept", "working")}
    return Expansion(
        own_bytes=own.usable_bytes,
        own_bytes_per_s=own.bytes_per_s * efficiency.memory,
        names=tuple(tier.name for tier in tiers),
        tier_bytes=tuple(tier.usable_bytes for tier in tiers),
        tier_bytes_per_s=tuple(tier.bytes_per_s * efficiency.memory for tier in tiers),
        latency_s=tuple(tier.latency_s for tier in tiers),
        coldest=_coldest([name for what in cluster.spill for name in wide.get(what, (what,))]),
        hybrid=cluster.hybrid,
    )


def _coldest(order: Sequence[str]) -> tuple[str, ...]:
    return (TABLES, *order) if order else ()


def hybrid_bytes_per_s(
    own_bytes_per_s: float, tier_bytes_per_s: float, share: Array, hybrid: HybridModel
) -> Array:
    """The bandwidth of traffic of which `share` is to an expanded tier: in turn, or both at once."""
    own = (1.0 - share) / own_bytes_per_s
    far = share / tier_bytes_per_s
    return 1.0 / (own + far if hybrid == "serial" else np.maximum(own, far))


def tier_shares(expansion: Expansion, sizes: Mapping[str, Array], pinned_bytes: Array) -> Shares:
    """Where tensors of these sizes lie, beside `pinned_bytes` that cannot leave the device.

    They fill the device's own memory, then tier after tier, those first that leave last; the last tier takes
    the rest, whether it has room or not. Without an order all lie in every tier, in proportion.
    """
    ends = list(accumulate((expansion.own_bytes, *expansion.tier_bytes[:-1])))
    tiers = [*zip(ends, [*ends[1:], np.inf], strict=True)]  # from where to where each one reaches
    if not expansion.coldest:
        total = pinned_bytes + sum(sizes.values(), start=np.zeros(1))
        parts = tuple(_within(np.zeros(1), total, tier) / np.maximum(total, 1.0) for tier in tiers)
        return dict.fromkeys(CLASSES, parts)
    found: dict[str, tuple[Array, ...]] = {}
    start = pinned_bytes
    for name in (each for each in reversed(expansion.coldest) if each in sizes):
        size = sizes[name]
        end = start + size
        found[name] = tuple(_within(start, end, tier) / np.maximum(size, 1.0) for tier in tiers)
        start = end
    return found


def _within(start: Array, end: Array, reach: tuple[float, float]) -> Array:
    """How much of what lies from `start` to `end` is inside a reach."""
    return np.asarray(np.maximum(np.minimum(end, reach[1]) - np.maximum(start, reach[0]), 0.0))


def tier_traffic_bytes(shares: Shares, touched: Mapping[str, Array]) -> list[Array]:
    """Bytes of some accesses that go to each expanded tier."""
    count = len(next(iter(shares.values())))
    return [
        sum((size * shares[name][tier] for name, size in touched.items()), start=np.zeros(1))
        for tier in range(count)
    ]


def with_working(touched: Mapping[str, Array], traffic_bytes: Array) -> dict[str, Array]:
    """Accesses by class, where what is not told by class is to activations that are worked on."""
    named = sum(touched.values(), start=np.zeros(1))
    return {**touched, "working": np.maximum(traffic_bytes - named, 0.0)}


def added_s(
    expansion: Expansion,
    shares: Shares,
    busy_s: Array,
    traffic_bytes: Array,
    touched: Mapping[str, Array],
) -> Array:
    """What expanded tiers add to work of `busy_s` that moves `traffic_bytes`, of which `touched` by class.

    A roofline: compute runs beside memory. Read in turn, tiers and own memory take the sum of their times;
    at the same time, the longest. What is not told by class is being worked on.
    """
    every = with_working(touched, traffic_bytes)
    far = tier_traffic_bytes(shares, every)
    all_s = traffic_bytes / expansion.own_bytes_per_s
    own_s = np.maximum(all_s - sum(far, start=np.zeros(1)) / expansion.own_bytes_per_s, 0.0)
    tiers_s = [
        moved / rate + latency * _touches(shares, every, tier)
        for tier, (moved, rate, latency) in enumerate(
            zip(far, expansion.tier_bytes_per_s, expansion.latency_s, strict=True)
        )
    ]
    if expansion.hybrid == "serial":
        needed = own_s + sum(tiers_s, start=np.zeros(1))
    else:
        needed = np.maximum.reduce(np.broadcast_arrays(own_s, *tiers_s))
    return np.maximum(needed - np.maximum(busy_s, all_s), 0.0)


def _touches(shares: Shares, touched: Mapping[str, Array], tier: int) -> Array:
    """How many classes are read or written in a tier."""
    return sum(
        ((shares[name][tier] * size > 0).astype(float) for name, size in touched.items()), start=np.zeros(1)
    )


def spilled_bytes(sizes: Mapping[str, Array], shares: Shares, names: Sequence[str] = CLASSES) -> Array:
    """Bytes of some classes that lie in expanded tiers."""
    far = (sizes[name] * sum(shares[name], start=np.zeros(1)) for name in names if name in sizes)
    return sum(far, start=np.zeros(1))
