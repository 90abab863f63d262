"""The time of one collective of one group of ranks on a network of levels."""

from dataclasses import dataclass
from math import ceil, floor, inf, log, log2, prod

from trainwright.cost.collective import Link
from trainwright.plan.strategy import Strategy

AXES = ("tp", "cp", "dp", "pp")  # ranks are numbered with tp innermost
TORUS_AXES = {"ring": 1, "torus2d": 2, "torus3d": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """A group on one level: members below each of its ends, and how many such parts the level joins."""

    link: Link
    below: float
    fan: float

    @property
    def rate(self) -> float:
        """Bytes per second and device of the links that the group can use."""
        return self.link.bytes_per_s * usable_links(self.link, self.fan)

    @property
    def doublings(self) -> int:
        """Steps of a tree over the parts."""
        return ceil(log2(max(self.fan, 1.0)))

    def round_s(self, rings: float = 1.0) -> float:
        """Latency of a pass around the parts, in each of the parts' rings after another."""
        link = self.link
        if link.hop_s > 0:
            return link.hop_s * (self.fan - 1.0) * rings + 2.0 * link.extra_s * self.doublings
        return link.latency_s * min((self.fan - 1.0) * rings, 2.0 * self.doublings)


def usable_links(link: Link, fan: float) -> float:
    """Share of a device's links: of a full mesh, those to members; of a torus, those along spanned axes."""
    axes = TORUS_AXES.get(link.topology, 0)
    if link.topology == "full" and link.size > 1:
        return min((max(fan, 2.0) - 1.0) / (link.size - 1), 1.0)
    if axes > 1 and link.size > 1:
        spanned = ceil(axes * log(max(fan, 2.0)) / log(link.size) - 1e-9)
        return min(max(spanned, 1), axes) / axes
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The ranks of one collective, as they stand on the levels."""

    size: float
    hops: tuple[Hop, ...]

    @property
    def spanned(self) -> list[Hop]:
        """The levels that join members."""
        return [hop for hop in self.hops if hop.fan > 1]

    @property
    def start_s(self) -> float:
        """Before the first byte moves."""
        return max((hop.link.start_s for hop in self.spanned), default=0.0)

    def all_gather_s(self, size_bytes: float) -> float:
        """A ring through all members, on which the slowest level sets the pace."""
        n = self.size
        return (n - 1) / n * size_bytes / self._ring_rate() + self._trip_s() + self.start_s if n > 1 else 0.0

    def reduce_scatter_s(self, size_bytes: float) -> float:
        """A ring, or an all-reduce of which the rest is dropped."""
        return min(self.all_gather_s(size_bytes), self.all_reduce_s(size_bytes))

    def all_reduce_s(self, size_bytes: float) -> float:
        """The fastest of ring, pair of trees, level by level, and reduction in switches."""
        n = self.size
        if n <= 1:
            return 0.0
        ring_s = 2.0 * ((n - 1) / n * size_bytes / self._ring_rate() + self._trip_s())
        ways = (ring_s, self._trees_s(size_bytes), self._levels_s(size_bytes), self._switches_s(size_bytes))
        return min(ways) + self.start_s

    def all_to_all_s(self, size_bytes: float, copies: int = 1) -> float:
        """Each level carries what leaves the parts below it: of `copies` pieces to random members, one to
        each part that holds some of them.
        """
        if self.size <= 1:
            return 0.0
        slowest_s = 0.0
        for hop in self.spanned:
            parts = self.size / hop.below
            wanted = 1.0 - (1.0 - 1.0 / parts) ** copies
            leaving = (parts - 1.0) * wanted / copies * size_bytes
            slowest_s = max(slowest_s, leaving * crossed_links(hop) / hop.rate)
        return slowest_s + self.start_s + 2.0 * self._tree_latency_s()

    def _ring_rate(self) -> float:
        return min((hop.rate * hop.below for hop in self.spanned), default=inf)

    def _trip_s(self) -> float:
        return sum(hop.round_s(self.size / (hop.below * hop.fan)) for hop in self.hops)

    def _tree_latency_s(self) -> float:
        return sum(hop.link.latency_s * hop.doublings for hop in self.spanned)

    def _trees_s(self, size_bytes: float) -> float:
        """Parts send all bytes twice, or once if there are two; a switch that reduces takes (n+1)/n."""
        slowest_s = 0.0
        for hop in self.spanned:
            times = 2.0 if hop.fan > 2 else 1.0
            if hop.link.reduction and hop.fan > 2:
                times = min(times, (hop.fan + 1.0) / hop.fan / hop.link.reducing)
            slowest_s = max(slowest_s, times * size_bytes / (hop.rate * hop.below))
        return slowest_s + 2.0 * self._tree_latency_s()

    def _levels_s(self, size_bytes: float) -> float:
        """Reduce-scatter from level to level outwards, all-gather inwards."""
        return sum(
            2.0 * ((hop.fan - 1.0) / hop.fan * size_bytes / hop.below / hop.rate + hop.round_s())
            for hop in self.spanned
        )

    def _switches_s(self, size_bytes: float) -> float:
        """In the switches of every level; not if one cannot, nor for two members."""
        n, spanned = self.size, self.spanned
        if n <= 2 or not all(hop.link.reduction for hop in spanned):
            return inf
        slowest = min(hop.rate * hop.below * hop.link.reducing for hop in spanned)
        return (n + 1.0) / n * size_bytes / slowest + 2.0 * sum(hop.link.latency_s for hop in spanned)


def crossed_links(hop: Hop) -> float:
    """Links between two random parts: on a torus a quarter of each side."""
    axes = TORUS_AXES.get(hop.link.topology, 0)
    return max(axes * hop.fan ** (1.0 / axes) / 4.0, 1.0) if axes else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The ranks of one strategy on the network: which axis is innermost, which next."""

    links: tuple[Link, ...]
    strategy: Strategy

    def stride(self, axis: str) -> int:
        """How far apart neighbours along an axis are."""
        order = self.strategy.order.split("-")
        return prod(getattr(self.strategy, inner) for inner in order[: order.index(axis)])

    def group(self, size: float, step: float) -> Group:
        """`size` ranks of a stage, every `step`-th; ranks are numbered tp, cp, dp, in any rank order."""
        rows = self._rows(size, step)
        hops, below = [], 1.0
        for link in self.links:
            outermost = link is self.links[-1]
            inside = prod(n if outermost else min(max(floor(link.inside / apart), 1), n) for n, apart in rows)
            hops.append(Hop(link=link, below=below, fan=inside / below))
            below = max(inside, below)
        return Group(size=size, hops=tuple(hops))

    def _rows(self, size: float, step: float) -> list[tuple[float, float]]:
        """Sizes and strides of the grid that the group is on the network; contiguous ones are joined."""
        if self.strategy.order == "-".join(AXES):
            return [(size, step)]
        rows, inner = [], 1.0
        for axis in AXES[:3]:
            degree = getattr(self.strategy, axis)
            first, end = (min(max(at / inner, 1.0), degree) for at in (step, step * size))
            if end > first:
                rows.append((end / first, self.stride(axis) * first))
            inner *= degree
        joined: list[tuple[float, float]] = []
        for n, apart in sorted(rows, key=lambda row: row[1]):
            if joined and apart == joined[-1][0] * joined[-1][1]:
                joined[-1] = (joined[-1][0] * n, joined[-1][1])
            else:
                joined.append((n, apart))
        return joined

    def send_s(self, size_bytes: float) -> float:
        """To the next pipeline stage, over the innermost level that joins the two."""
        stride = self.stride("pp")
        link = next((link for link in self.links if stride < link.inside), self.links[-1])
        axes, share = TORUS_AXES.get(link.topology, 0), 1.0
        if link.topology == "full" and link.size > 1:
            share = 1.0 / (link.size - 1)
        elif axes:
            share = 0.5 / axes
        hop_s = link.hop_s + link.extra_s if link.hop_s > 0 else link.latency_s
        return size_bytes / (link.bytes_per_s * share) + hop_s
