"""Bytes per parameter of the state that training keeps, by precision."""

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Device
from trainwright.cost.constants import Efficiency, Stack

Array = NDArray[np.float64]
Flags = NDArray[np.bool_] | bool


def gradient_sizes(stack: Stack, half: Flags) -> tuple[Array, Array]:
    """Bytes per parameter of a gradient as accumulated, and as sent: fp16 runs keep both in fp16."""
    kept = np.where(half, min(stack.gradient_bytes, stack.fp16_gradient_bytes), stack.gradient_bytes)
    return kept, np.where(half, min(stack.reduce_bytes, stack.fp16_gradient_bytes), stack.reduce_bytes)


def weight_sizes(stack: Stack, whole: Flags) -> tuple[Array, Array]:
    """Bytes per parameter of a weight and of its optimizer state: in fp32 the weight is its own main copy."""
    return np.where(whole, 4.0, 2.0), np.where(whole, min(8.0, stack.optimizer_bytes), stack.optimizer_bytes)


def update_s(device: Device, efficiency: Efficiency, traffic_bytes: Array) -> Array:
    """The time of an update that reads and writes so many bytes of the device's own memory."""
    if efficiency.kernels is None:
        return traffic_bytes / (device.memory[0].bytes_per_s * efficiency.memory)
    scale = efficiency.kernels.memory_bytes_per_s / device.memory[0].bytes_per_s
    return scale * efficiency.kernels.seconds("optimizer", np.maximum(traffic_bytes, 1.0))
