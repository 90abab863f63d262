"""What a cluster draws while it trains."""

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster


def power_w(cluster: Cluster, busy_fraction: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Power of the cluster at the meter: devices from idle to peak by busy time, hosts, and cooling (pue)."""
    device = cluster.device
    drawn = device.idle_w + (device.peak_w - device.idle_w) * np.clip(busy_fraction, 0.0, 1.0)
    return np.asarray(cluster.count * (drawn + cluster.network.host_w) * cluster.pue)
