"""The cluster's levels as collectives see them."""

from trainwright.cluster.types import Cluster, Level
from trainwright.cost.collective import Link
from trainwright.cost.constants import Efficiency, Stack
from trainwright.cost.fabric import fabric_of


def link_share(level: Level, index: int, efficiency: Efficiency) -> float:
    """What rings reach of a level's bandwidth: as one's own machine says, else its fabric's."""
    stated = efficiency.outer_link if index else efficiency.inner_link
    return stated or fabric_of(efficiency.fabrics, level.fabric, index).share


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
                hop_s=fabric.hop_s if level.topology in ("switch", "full", "dragonfly") else 0.0,
                table=efficiency.table if len(cluster.network.levels) == 1 else None,
            )
        )
    return tuple(result)
