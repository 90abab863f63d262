"""The time of collectives on a network of levels: latency and bandwidth, ring or tree as is faster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.table import CollectiveTable

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One network level as collectives see it: achieved bandwidth, latency, and devices inside it."""

    inside: int  # devices joined by this level and the levels below it
    bytes_per_s: float  # achieved per device and direction, over all of its links at this level
    latency_s: float  # per doubling of a tree, software included
    reduction: bool  # the switch reduces: an all-reduce sends its data once
    topology: str = "switch"
    size: int = 1  # groups of the level below that it joins
    table: CollectiveTable | None = None  # measured times, which go before all formulas
    hop_s: float = 0.0  # from member to member of a ring that is under way; 0: as long as a latency
    start_s: float = 0.0  # once per collective
    extra_s: float = 0.0  # of the latency, what the software adds to every algorithm
    reducing: float = 0.8  # rate of a switch that reduces, of the rate of rings
    times: float = 1.0  # as long as measured, on links of another rate
    algorithms: tuple[str, ...] = ()  # of which the cheapest is taken; none: those of the fitted constants


def _measured_s(links: Sequence[Link], kind: str, members: Array, size_bytes: Array) -> Array | None:
    """The time from a table of measurements; None if there is none of the kind."""
    table = links[0].table
    if table is None or not table.knows(kind):
        return None
    return links[0].times * table.seconds(kind, members, size_bytes)


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


def joint_span(links: Sequence[Link], parts: Sequence[tuple[Array, Array]]) -> Span:
    """Where the members of groups lie that extend along several axes, each of a size and a stride.

    Two axes that continue each other are one, so that sizes which do not divide a level are counted alike.
    """
    every = [np.stack(np.broadcast_arrays(*each)) for each in zip(*parts, strict=True)]
    order = np.argsort(np.where(every[0] > 1, every[1], np.inf), axis=0)  # the innermost axis first
    sizes, strides = (np.take_along_axis(each, order, axis=0) for each in every)
    size, stride = sizes[0], strides[0]
    pieces: list[tuple[Array, Array]] = []
    for more, step in zip(sizes[1:], strides[1:], strict=True):
        joined = (step == size * stride) | (more <= 1)
        pieces.append((np.where(joined, 1.0, size), stride))
        size, stride = np.where(joined, size * more, more), np.where(joined, stride, step)
    pieces.append((size, stride))
    whole = [span(links, *piece) for piece in pieces]
    below: list[Array] = []
    fan: list[Array] = []
    for level in range(len(links)):
        below.append(_times([each.below[level] for each in whole]))
        fan.append(_times([each.fan[level] for each in whole]))
    return Span(size=_times([each.size for each in whole]), below=tuple(below), fan=tuple(fan))


def _times(factors: Sequence[Array]) -> Array:
    product = factors[0]
    for each in factors[1:]:
        product = product * each
    return product


_AXES = {"ring": 1, "torus2d": 2, "torus3d": 3}  # of direct networks: two links along each


def _usable(link: Link, fan: Array) -> Array:
    """The share of a device's links at one level that a group of `fan` members can use.

    Behind a switch all of them; fully connected, those to the other members; on a torus, those along the axes
    that the group spans.
    """
    if link.topology == "full" and link.size > 1:
        return np.minimum((np.maximum(fan, 2.0) - 1.0) / (link.size - 1.0), 1.0)
    axes = _AXES.get(link.topology, 0)
    if axes > 1 and link.size > 1:
        spanned = np.ceil(axes * np.log(np.maximum(fan, 2.0)) / np.log(link.size) - 1e-9)
        return np.asarray(np.clip(spanned, 1.0, axes) / axes)
    return np.ones(1)


def _hops(link: Link, fan: Array) -> Array:
    """Links that a message between two random members crosses: on a torus a quarter of each side."""
    axes = _AXES.get(link.topology, 0)
    return np.maximum(axes * fan ** (1.0 / axes) / 4.0, 1.0) if axes else np.ones(1)


def ring_bytes_per_s(links: Sequence[Link], where: Span) -> Array:
    """Bandwidth of a ring through all members: the slowest level, whose links all members below it share."""
    slowest = np.full(where.size.shape, np.inf)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        rate = link.bytes_per_s * _usable(link, fan) * below
        np.minimum(slowest, np.where(fan > 1, rate, np.inf), out=slowest)
    return slowest


def _start_s(links: Sequence[Link], where: Span) -> Array:
    """Before the first byte moves: the longest start of the levels that are spanned."""
    total = np.zeros(where.size.shape)
    for link, fan in zip(links, where.fan, strict=True):
        np.maximum(total, np.where(fan > 1, link.start_s, 0.0), out=total)
    return total


def _hop_s(link: Link) -> float:
    """From one member to the next: a hop of a ring, or a latency where there are none."""
    return link.hop_s + link.extra_s if link.hop_s > 0 else link.latency_s


def _round_s(link: Link, fan: Array, groups: Array | float = 1.0) -> Array:
    """Once around the members of one level, in each of the groups that a ring passes one after the other.

    On tori, where rings of every axis run side by side, there are no hops: two doublings' worth of latency
    if that is less.
    """
    doublings = np.ceil(np.log2(np.maximum(fan, 1.0)))
    if link.hop_s > 0:
        return np.asarray(link.hop_s * (fan - 1.0) * groups + 2.0 * link.extra_s * doublings)
    return np.asarray(link.latency_s * np.minimum((fan - 1.0) * groups, 2.0 * doublings))


def _ring_latency_s(links: Sequence[Link], where: Span) -> Array:
    """One trip around the ring through all members."""
    total = np.zeros(where.size.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        total += _round_s(link, fan, where.size / (below * fan))
    return total


def _tree_latency_s(links: Sequence[Link], where: Span) -> Array:
    """From the leaves to the root: one hop per doubling."""
    total = np.zeros(where.size.shape)
    for link, fan in zip(links, where.fan, strict=True):
        total += link.latency_s * np.ceil(np.log2(np.maximum(fan, 1.0)))
    return total


def _switch_latency_s(links: Sequence[Link], where: Span) -> Array:
    """Through the switches of every level that is spanned, once."""
    total = np.zeros(where.size.shape)
    for link, fan in zip(links, where.fan, strict=True):
        total += np.where(fan > 1, link.latency_s, 0.0)
    return total


def _half_s(link: Link, fan: Array, size_bytes: Array) -> Array:
    """The fastest of a level's algorithms to scatter a sum of `size_bytes`, or to gather them, over `fan`.

    All send (fan−1)/fan of the bytes. A ring takes fan−1 hops, doubling log₂, direct messages one; a torus
    one ring along each of its axes, on all links at once. Doubling uses one link of a full mesh at a time.
    Neighbours of a dragonfly's ring, or of its doubling, share one bundle of global links: routed over other
    groups, they reach half of the rate.
    """
    sent = (fan - 1.0) / fan * size_bytes
    rate = link.bytes_per_s * _usable(link, fan)
    paired = rate * (0.5 if link.topology == "dragonfly" else 1.0)
    doublings = np.ceil(np.log2(np.maximum(fan, 1.0)))
    ways: list[Array] = []
    for name in link.algorithms or ("ring", "halving-doubling"):
        if name == "ring":
            ways.append(sent / paired + (fan - 1.0) * _hop_s(link))
        elif name == "halving-doubling":
            one = link.bytes_per_s * _one_link(link) if link.topology == "full" else paired
            ways.append(sent / one + doublings * link.latency_s)
        elif name == "direct":
            ways.append(sent / rate + _hop_s(link))
        elif name == "dimension-wise":
            axes = _AXES[link.topology]
            spanned = np.clip(np.round(_usable(link, fan) * axes), 1.0, axes)
            ways.append(sent / rate + spanned * (fan ** (1.0 / spanned) - 1.0) * link.latency_s)
    return np.minimum.reduce(np.broadcast_arrays(*ways)) if ways else np.full(np.shape(sent), np.inf)


def _sum_s(link: Link, fan: Array, size_bytes: Array) -> Array:
    """The fastest of a level's algorithms to sum `size_bytes` over `fan` for all: two halves, or one tree."""
    best = 2.0 * _half_s(link, fan, size_bytes)
    rate = link.bytes_per_s * _usable(link, fan)
    if "tree" in link.algorithms:
        doublings = np.ceil(np.log2(np.maximum(fan, 1.0)))
        best = np.minimum(best, 2.0 * size_bytes / rate + 2.0 * doublings * link.latency_s)
    if "in-network" in link.algorithms:
        sent = (fan + 1.0) / fan * size_bytes
        best = np.minimum(best, sent / (link.reducing * rate) + 2.0 * link.latency_s)
    return best


def _chosen_s(
    links: Sequence[Link], where: Span, size_bytes: Array, cost: Callable[[Link, Array, Array], Array]
) -> Array:
    """Level by level, each with the cheapest of its algorithms on what the levels below have left."""
    total = np.zeros(np.broadcast(where.size, size_bytes).shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        total = total + np.where(fan > 1, cost(link, np.maximum(fan, 1.0), size_bytes / below), 0.0)
    return total + _start_s(links, where)


def _states(links: Sequence[Link]) -> bool:
    """Whether some level says which algorithms it has."""
    return any(link.algorithms for link in links)


def is_straight(links: Sequence[Link]) -> bool:
    """Whether gathers and exchanges take a line over their bytes: not where times are measured, or the best
    algorithm changes with size.
    """
    return links[0].table is None and not _states(links)


def all_gather_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Time until every member holds all `size_bytes`.

    Ring: the start, n−1 hops, and (n−1)/n·bytes/bandwidth, as gathers and scatters of many bytes have no
    logarithmic algorithm that is as fast. So half of the bandwidth is reached at a size that grows with n,
    as SimAI's tables of ring collectives on 16 to 1,024 devices have it.
    """
    if (found := _measured_s(links, "all_gather", where.size, size_bytes)) is not None:
        return found
    if _states(links):
        return _chosen_s(links, where, size_bytes, _half_s)
    n = where.size
    latency = _start_s(links, where) + _ring_latency_s(links, where)
    return np.where(n > 1, (n - 1) / n * size_bytes / ring_bytes_per_s(links, where) + latency, 0.0)


def _level_by_level_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Reduce-scatter up the levels and all-gather down again: each level carries what is left by those below.

    Slower than a ring that keeps all levels busy at once, but fewer bytes cross the outer ones.
    """
    total = np.zeros(where.size.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        rate = link.bytes_per_s * _usable(link, fan)
        time_s = 2.0 * (fan - 1.0) / fan * size_bytes / below / rate + 2.0 * _round_s(link, fan)
        total += np.where(fan > 1, time_s, 0.0)
    return total


def _tree_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Up and down a pair of trees, all levels busy at once.

    In a pair of binary trees each group sends everything twice; two groups, each the root of one tree, send
    it once. So all-reduces over two nodes are nearly twice as fast as over more, which nccl-tests on two
    nodes show. Switches that reduce take (n+1)/n.
    """
    slowest = np.zeros(where.size.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        times = np.where(fan > 2, 2.0, 1.0)
        if link.reduction:
            times = np.where(fan > 2, np.minimum(times, (fan + 1.0) / fan / link.reducing), times)
        time_s = times * size_bytes / (link.bytes_per_s * _usable(link, fan) * below)
        np.maximum(slowest, np.where(fan > 1, time_s, 0.0), out=slowest)
    return slowest + 2.0 * _tree_latency_s(links, where)


def _switched_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Reduced by the switches of every level that is spanned; endless where one of them cannot, or for two.

    Each member sends everything to be reduced and the n-th part of the sum to be spread, (n+1)/n in all, at
    a rate of its own (NVLink SHARP on 5 to 8 devices, within 2 %).
    """
    n = where.size
    slowest = np.zeros(n.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        rate = link.bytes_per_s * _usable(link, fan) * below * (link.reducing if link.reduction else 0.0)
        time_s = np.divide(
            (n + 1.0) / n * size_bytes, rate, out=np.full(n.shape, np.inf), where=(rate > 0) & (n > 2)
        )
        np.maximum(slowest, np.where(fan > 1, time_s, 0.0), out=slowest)
    return slowest + 2.0 * _switch_latency_s(links, where)


def all_reduce_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Time until every member holds the sum: the fastest of ring, trees, level by level, and in-network; or
    level by level with those algorithms that the levels state.
    """
    if (found := _measured_s(links, "all_reduce", where.size, size_bytes)) is not None:
        return found
    if _states(links):
        return _chosen_s(links, where, size_bytes, _sum_s)
    n = where.size
    ring = 2.0 * (n - 1) / n * size_bytes / ring_bytes_per_s(links, where) + 2.0 * _ring_latency_s(
        links, where
    )
    best = np.minimum(
        np.minimum(ring, _tree_s(links, where, size_bytes)), _level_by_level_s(links, where, size_bytes)
    )
    if any(link.reduction for link in links):
        best = np.minimum(best, _switched_s(links, where, size_bytes))
    return np.where(n > 1, _start_s(links, where) + best, 0.0)


def reduce_scatter_s(links: Sequence[Link], where: Span, size_bytes: Array) -> Array:
    """Time until every member holds its part of the sum: as long as a gather, or as an all-reduce that drops
    the rest, which switches that reduce may make shorter.
    """
    if (found := _measured_s(links, "reduce_scatter", where.size, size_bytes)) is not None:
        return found
    gathered = all_gather_s(links, where, size_bytes)
    return np.minimum(gathered, all_reduce_s(links, where, size_bytes))


def all_to_all_s(links: Sequence[Link], where: Span, size_bytes: Array, copies: int = 1) -> Array:
    """Time to exchange `size_bytes` per member evenly: each level carries what leaves the groups below it.

    Of `copies` equal pieces that go to members at random (a token to its experts), one crosses to each group
    that wants it and is copied there, so a level with g groups carries (g−1)(1−(1−1/g)^copies) pieces.
    """
    if (found := _measured_s(links, "all_to_all", where.size, size_bytes)) is not None:
        return found
    n = where.size
    slowest = np.zeros(n.shape)
    for link, below, fan in zip(links, where.below, where.fan, strict=True):
        groups = n / below
        pieces = (groups - 1.0) * (1.0 - (1.0 - 1.0 / np.maximum(groups, 1.0)) ** copies) / copies
        leaving = np.where(fan > 1, pieces, 0.0) * size_bytes
        rate = link.bytes_per_s * _usable(link, fan) / _hops(link, fan)
        np.maximum(slowest, leaving / rate, out=slowest)
    return np.where(n > 1, slowest + _start_s(links, where) + 2.0 * _tree_latency_s(links, where), 0.0)


def _one_link(link: Link) -> float:
    """The share of a device's links at one level that lead to one neighbour."""
    if link.topology == "full" and link.size > 1:
        return 1.0 / (link.size - 1)
    return 0.5 / _AXES[link.topology] if link.topology in _AXES else 1.0


def send_s(links: Sequence[Link], stride: Array, size_bytes: Array) -> Array:
    """Time to send to the device `stride` away, over the innermost level that joins the two."""
    if (
        found := _measured_s(links, "send", np.full(np.broadcast(stride, size_bytes).shape, 2.0), size_bytes)
    ) is not None:
        return found
    result = np.full(np.broadcast(stride, size_bytes).shape, np.nan)
    for link in reversed(links):
        time_s = size_bytes / (link.bytes_per_s * _one_link(link)) + _hop_s(link)
        result = np.where((stride < link.inside) | np.isnan(result), time_s, result)
    return result
