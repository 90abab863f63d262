"""What a network costs to buy, by the bandwidth that each device has at each of its levels.

Dollars per GB/s and device, as the authors of COMET and ASTRA-sim publish them (their network cost model,
2021): links inside a package or node 4 and switches 13, between pods links 7.8, switches 18 and NICs 31.6.
"""

from dataclasses import dataclass

from trainwright.cluster.types import Cluster, Level

_GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPrice:
    """Dollars per GB/s of one device at a level."""

    link: float
    switch: float
    nic: float = 0.0


INNER = LevelPrice(link=4.0, switch=13.0)  # inside a package, node or pod
OUTER = LevelPrice(link=7.8, switch=18.0, nic=31.6)  # between pods
_SWITCHED = ("switch", "dragonfly")  # others join devices by links alone


def dollars_per_gbps(level: Level, *, outermost: bool) -> float:
    """Dollars per GB/s of one device at a level."""
    price = OUTER if outermost else INNER
    switch = price.switch if level.topology in _SWITCHED else 0.0
    return price.link + switch + price.nic


def network_dollars(cluster: Cluster) -> float:
    """What the levels that join a cluster's devices cost; an only level is an inner one."""
    levels = cluster.levels
    each = sum(
        level.bytes_per_s / _GB * dollars_per_gbps(level, outermost=0 < index == len(levels) - 1)
        for index, level in enumerate(levels)
    )
    return cluster.count * each
