"""What a cluster draws while it trains, by what its devices do."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster

Share = float | NDArray[np.float64]

# What lies between idle and peak, by what makes a device draw it; the sum is its peak. While a step goes on a
# device is awake throughout: clocks are up, and kernels that wait for others spin. Memory: 3.9 pJ a bit of
# HBM2 (O'Connor et al., MICRO 2017) are 105 W at an H100's 3.35 TB/s, 15 % of its peak. Links: some pJ a bit
# (recalled), 2 to 3 %. The division of the rest between being awake and matrix products is an estimate.
AWAKE, MATRIX, MEMORY, LINK = 0.55, 0.27, 0.15, 0.03
_STREAMED_BY_PRODUCTS = 0.4  # of the memory's rate, while matrix units work


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Shares of a step: when matrix units work, when memory streams, when links carry something."""

    matrix: Share
    memory: Share
    link: Share


def activity_of(time_s: Mapping[str, float], communication_s: Mapping[str, float], step_s: float) -> Activity:
    """What a device does in a step, from its parts; communication counts whether it is hidden or not."""
    matrix_s = sum(time_s.get(name, 0.0) for name in ("matmul", "attention", "recompute"))
    memory_s = sum(time_s.get(name, 0.0) for name in ("streaming", "optimizer", "offload", "tiers"))
    link_s = sum(communication_s.values())
    return Activity(matrix=matrix_s / step_s, memory=memory_s / step_s, link=link_s / step_s)


def device_w(cluster: Cluster, activity: Activity) -> NDArray[np.float64]:
    """Power of one device in a step."""
    device = cluster.device
    matrix, memory, link = (np.clip(x, 0.0, 1.0) for x in (activity.matrix, activity.memory, activity.link))
    streaming = np.clip(memory + _STREAMED_BY_PRODUCTS * matrix, 0.0, 1.0)
    level = AWAKE + MATRIX * matrix + MEMORY * streaming + LINK * link
    return np.asarray(device.idle_w + (device.peak_w - device.idle_w) * level)


def power_w(cluster: Cluster, activity: Activity) -> NDArray[np.float64]:
    """Power of the cluster at the meter: devices, hosts, and cooling (pue)."""
    return np.asarray(cluster.count * (device_w(cluster, activity) + cluster.network.host_w) * cluster.pue)
