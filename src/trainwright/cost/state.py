"""Bytes per parameter of the state that training keeps, and the time of its update."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import Efficiency, Stack
from trainwright.stack.optimizer import ADAM_BYTES, MASTER_BYTES

Array = NDArray[np.float64]

# What a host's memory gives one of its devices while the CPU updates weights, where the catalog states
# nothing. Two sockets of 8 channels of DDR5-4800 move 2 * 8 * 4.8e9 * 8 B = 614 GB/s, 77 GB/s for each of 8
# devices. Of that an Adam update has 0.7, as every line that it writes is read first (28 of 40 bytes count),
# and both sockets sustain about 0.7 of their peak beside the copies of gradients and weights: 37 GB/s.
HOST_UPDATE_BYTES_PER_S = 37e9


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWidths:
    """Bytes per parameter, of layers and of the ends: embedding and head.

    Norms and routers count with the linear operators of their layer, which are over 99.9 % of it.
    """

    weight: float  # as computed with and sent
    stored: float  # a weight of a layer as it is kept where optimizer state is sharded
    unsharded: float  # and where it is not: a 16-bit weight beside its fp8 or fp4 copies
    optimizer: float
    end_optimizer: float
    gradient: float  # as accumulated
    reduced: float  # on the wire
    host_traffic: float  # read and written by an update on the host, whose CPU computes in fp32


def state_widths(stack: Stack, family: str, precision: str) -> StateWidths:
    """The widths of a stack at a precision on a family of devices; weights at the ends are as computed."""
    weight = 4.0 if precision == "fp32" else 2.0
    choice, own = stack.optimizer, stack.optimizer_bytes
    if choice is None:
        layers = ends = min(ADAM_BYTES, own) if precision == "fp32" else own
    else:
        master = choice.master_bytes(own - ADAM_BYTES, precision)
        layers, ends = master + choice.moment_bytes, master + choice.end_bytes
    host = own if choice is None else max(layers, MASTER_BYTES + 4.0 * choice.moments)
    low = stack.capability.weight_bytes.get(precision, {}).get(family)
    half = precision == "fp16" and not stack.grad_dtype
    least = stack.fp16_gradient_bytes
    gradient = min(stack.gradient_bytes, least) if half else stack.gradient_bytes
    return StateWidths(
        weight=weight,
        stored=weight if low is None else low,
        unsharded=weight if low is None else weight + low,
        optimizer=layers,
        end_optimizer=ends,
        gradient=gradient,
        reduced=min(stack.reduce_bytes, least) if half else stack.reduce_bytes,
        host_traffic=2.0 * host + 2.0 * max(gradient, MASTER_BYTES) + weight,
    )


def update_s(device: Device, efficiency: Efficiency, traffic_bytes: Array) -> Array:
    """The time of an update that reads and writes so many bytes of the device's own memory."""
    if efficiency.kernels is None:
        return traffic_bytes / (device.memory[0].bytes_per_s * efficiency.memory)
    scale = efficiency.kernels.memory_bytes_per_s / device.memory[0].bytes_per_s
    return scale * efficiency.kernels.seconds("optimizer", np.maximum(traffic_bytes, 1.0))


def host_update_bytes_per_s(cluster: Cluster, efficiency: Efficiency) -> Array:
    """What the host reads and writes for one device's update: its memory's rate, as far as it is known."""
    tier = cluster.host_tier
    if tier is None:
        link = cluster.network.host_bytes_per_s * efficiency.host_link
        return np.asarray(np.minimum(link, HOST_UPDATE_BYTES_PER_S))
    assumed = np.minimum(tier.bytes_per_s, HOST_UPDATE_BYTES_PER_S)
    return np.where(np.asarray(tier.update_bytes_per_s) > 0.0, tier.update_bytes_per_s, assumed)
