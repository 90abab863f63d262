"""What is asked of an estimate, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster
from trainwright.cost.constants import Efficiency, Stack
from trainwright.model.graph import Graph

Array = NDArray[np.float64]

TIMES = (
    "matmul", "attention", "streaming", "recompute", "launch",
    "tp", "cp", "ep", "pp", "dp", "offload", "tiers", "bubble", "optimizer", "overhead",
)  # fmt: skip
COMMUNICATION = ("tp", "cp", "ep", "pp", "dp")
MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers", "reserve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One question: this model, on that cluster, with this software, at this batch and sequence length."""

    graph: Graph
    cluster: Cluster
    stack: Stack
    efficiency: Efficiency
    seq: int
    global_batch: int | NDArray[np.int64]  # sequences per step; one for all strategies, or one each


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Step time and memory of each strategy; the parts of `time_s` add up to `step_s`.

    `time_s` holds what each cause adds to the step on the busiest stage (communication: its exposed part),
    `communication_s` the whole communication, hidden or not: both are empty unless detail is asked for.
    `busy_s` is the time that the mean device computes; `memory_bytes` are the parts of the fullest device,
    in whichever tier they lie, and `total_bytes` their sum.
    """

    step_s: Array
    busy_s: Array
    time_s: Mapping[str, Array]
    communication_s: Mapping[str, Array]
    memory_bytes: Mapping[str, Array]
    total_bytes: Array
    host_bytes: Array
    tiers_s: Array  # what expanded memory adds to the step
    tier_bytes: Mapping[tuple[str, str], Array]  # with detail: by expanded tier, of each part and `traffic`
    feasible: NDArray[np.bool_]  # fits the device's memory and the host's, and no stage is empty

    def __len__(self) -> int:
        return len(self.step_s)
