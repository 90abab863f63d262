"""The cluster's levels as collectives see them."""

from trainwright.cluster.types import Cluster
from trainwright.cost.collective import Link
from trainwright.cost.constants import Efficiency, Stack


def level_links(cluster: Cluster, efficiency: Efficiency, stack: Stack) -> tuple[Link, ...]:
    """Achieved bandwidth and latency of each level, inner to outer."""
    result: list[Link] = []
    inside = 1
    for index, level in enumerate(cluster.levels or cluster.network.levels[:1]):
        inside *= max(level.size, 1)
        share, software_s, hop_s = efficiency.inner_link, efficiency.inner_latency_s, efficiency.inner_hop_s
        if index > 0:
            share = efficiency.outer_link * stack.outer_share
            software_s, hop_s = efficiency.outer_latency_s + stack.outer_extra_s, efficiency.outer_hop_s
        result.append(
            Link(
                inside=inside,
                bytes_per_s=level.bytes_per_s * share / level.oversubscription,
                latency_s=level.latency_s + software_s,
                reduction=level.in_network_reduction,
                topology=level.topology,
                size=level.size,
                algorithms=level.algorithms,
                hop_s=hop_s if level.topology in ("switch", "full", "dragonfly") else 0.0,
                table=efficiency.table if len(cluster.network.levels) == 1 else None,
            )
        )
    return tuple(result)
