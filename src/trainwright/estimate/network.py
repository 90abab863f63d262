"""The cluster's levels as collectives see them."""

from trainwright.cluster.types import Cluster
from trainwright.cost.collective import Link
from trainwright.cost.constants import Efficiency


def links(cluster: Cluster, efficiency: Efficiency) -> tuple[Link, ...]:
    """Achieved bandwidth and latency of each level, inner to outer."""
    result: list[Link] = []
    inside = 1
    for index, level in enumerate(cluster.levels or cluster.network.levels[:1]):
        inside *= max(level.size, 1)
        share = efficiency.inner_link if index == 0 else efficiency.outer_link
        software_s = efficiency.inner_latency_s if index == 0 else efficiency.outer_latency_s
        result.append(
            Link(
                inside=inside,
                bytes_per_s=level.bytes_per_s * share / level.oversubscription,
                latency_s=level.latency_s + software_s,
                reduction=level.in_network_reduction,
            )
        )
    return tuple(result)
