"""The cluster's levels as collectives see them."""

import numpy as np

from trainwright.cluster.types import Cluster, Level
from trainwright.cost.collective import Link
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.fabric import Fabric, fabric_of

FAR_S = 1e-4  # of a link that leaves the building: 20 km; fitted hops are of links inside it


def link_share(level: Level, index: int, efficiency: Efficiency) -> float:
    """What rings reach of a level's bandwidth: as one's own machine says, else its fabric's."""
    stated = efficiency.outer_link if index else efficiency.inner_link
    return stated or fabric_of(efficiency.fabrics, level.fabric, index).share


def _hop_s(level: Level, fabric: Fabric) -> float:
    """From member to member of a ring that is under way; out of the building, never less than light takes."""
    if level.topology not in ("switch", "full", "dragonfly"):
        return 0.0
    far = np.ndim(level.latency_s) == 0 and level.latency_s >= FAR_S
    return max(fabric.hop_s, level.latency_s) if far else fabric.hop_s


def level_links(cluster: Cluster, efficiency: Efficiency, stack: Stack) -> tuple[Link, ...]:
    """Achieved bandwidth and latency of each level, inner to outer."""
    result: list[Link] = []
    inside = 1
    for index, level in enumerate(cluster.levels or cluster.network.levels[:1]):
        inside *= max(level.size, 1)
        fabric = fabric_of(efficiency.fabrics, level.fabric, index)
        share, extra_s = (stack.outer_share, stack.outer_extra_s) if index > 0 else (1.0, 0.0)
        result.append(
            Link(
                inside=inside,
                bytes_per_s=level.bytes_per_s
                * link_share(level, index, efficiency)
                * share
                / level.oversubscription,
                latency_s=level.latency_s + fabric.latency_s + extra_s,
                start_s=fabric.start_s,
                extra_s=extra_s,
                reducing=fabric.reducing,
                reduction=level.in_network_reduction,
                topology=level.topology,
                size=level.size,
                algorithms=level.algorithms,
                hop_s=_hop_s(level, fabric),
                table=efficiency.table if len(cluster.network.levels) == 1 else None,
            )
        )
    return tuple(result)
