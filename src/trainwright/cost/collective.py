"""The time of collectives on a network of levels: latency and bandwidth, ring or tree as is faster."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One network level as collectives see it: achieved bandwidth, latency, and devices inside it."""

    inside: int  # devices joined by this level and the levels below it
    bytes_per_s: float  # achieved per device and direction
    latency_s: float  # per hop of a collective, software included
    reduction: bool  # the switch reduces: an all-reduce sends its data once


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How a parallel axis lies on the levels: members below each level, and the fan-out of each."""

    size: Array
    below: tuple[Array, ...]
    fan: tuple[Array, ...]


def span(links: Sequence[Link], size: Array, stride: Array) -> Span:
    """Where the members of groups of `size` lie whose neighbours are `stride` devices apart."""
    below: list[Array] = []
    fan: list[Array] = []
    inner = np.ones(np.broadcast(size, stride).shape)
    for link in links:
        members = np.minimum(np.maximum(np.floor(link.inside / stride), 1.0), size)
        members = np.where(link is links[-1], size, members)
        below.append(inner)
        fan.append(members / inner)
        inner = np.maximum(members, inner)
    return Span(size=np.asarray(size, dtype=float), below=tuple(below), fan=tuple(fan))


def ring_bytes_per_s(links: Sequence[Link], where: Span) -> Array:
    """Bandwidth of a ring through all members: the slowest level, whose links all members below it share."""
    slowest = np.full(where.size.shape, np.inf)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        np.minimum(slowest, np.where(fan > 1, link.bytes_per_s * below, np.inf), out=slowest)
    return slowest


def _ring_latency_s(links: Sequence[Link], where: Span) -> Array:
    """One trip around the ring: every hop waits for its level's latency."""
    total = np.zeros(where.size.shape)
    outer = where.size
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        groups = outer / (below * fan)
        total += link.latency_s * (fan - 1) * groups
    return total


def _tree_latency_s(links: Sequence[Link], where: Span) -> Array:
    """From the leaves to the root: one hop per doubling."""
    total = np.zeros(where.size.shape)
    for link, fan in zip(links, where.fan, strict=True):
        total += link.latency_s * np.ceil(np.log2(np.maximum(fan, 1.0)))
    return total


def all_gather_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Time until every member holds all `size_bytes`; a reduce-scatter of as many bytes takes as long.

    Ring: (n−1)/n·bytes/bandwidth plus the trip's latency; beyond a node libraries switch to a
    logarithmic algorithm when that is faster.
    """
    n = where.size
    latency = np.minimum(_ring_latency_s(links, where), 2.0 * _tree_latency_s(links, where))
    return np.where(n > 1, (n - 1) / n * size_bytes / ring_bytes_per_s(links, where) + latency, 0.0)


def all_reduce_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Time until every member holds the sum: the faster of ring, tree and in-network reduction."""
    n = where.size
    bandwidth = ring_bytes_per_s(links, where)
    ring = 2.0 * (n - 1) / n * size_bytes / bandwidth + 2.0 * _ring_latency_s(links, where)
    tree = 2.0 * size_bytes / bandwidth + 2.0 * _tree_latency_s(links, where)
    best = np.minimum(ring, tree)
    if links[0].reduction:
        inner = links[0]
        inside = where.fan[0] >= n
        # Measured: NVLink SHARP moves all-reduces about 1.3 times as fast as a ring (480 against 370 GB/s).
        switched = 2.0 * (n - 1) / n * size_bytes / (1.3 * inner.bytes_per_s) + 2.0 * inner.latency_s
        best = np.where(inside & (n > 2), np.minimum(best, switched), best)
    return np.where(n > 1, best, 0.0)


def all_to_all_s(links: Sequence[Link], where: Span, size_bytes: Array, copies: int = 1) -> Array:
    """Time to exchange `size_bytes` per member evenly: each level carries what leaves the groups below it.

    Of `copies` equal pieces that go to members at random (a token to its experts), one crosses to each group
    that wants it and is copied there, so a level with g groups carries (g−1)(1−(1−1/g)^copies) pieces.
    """
    n = where.size
    slowest = np.zeros(n.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        groups = n / below
        pieces = (groups - 1.0) * (1.0 - (1.0 - 1.0 / np.maximum(groups, 1.0)) ** copies) / copies
        leaving = np.where(fan > 1, pieces, 0.0) * size_bytes
        np.maximum(slowest, leaving / link.bytes_per_s, out=slowest)
    return np.where(n > 1, slowest + 2.0 * _tree_latency_s(links, where), 0.0)


def send_s(links: Sequence[Link], stride: Array, size_bytes: Array) -> Array:
    """Time to send to the device `stride` away, over the innermost level that joins the two."""
    result = np.full(np.broadcast(stride, size_bytes).shape, np.nan)
    for link in reversed(links):
        time_s = size_bytes / link.bytes_per_s + link.latency_s
        result = np.where((stride < link.inside) | np.isnan(result), time_s, result)
    return result
