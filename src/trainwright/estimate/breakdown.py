"""What a step's time is made of, on the device of the busiest stage."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.overlap import shown_s
from trainwright.estimate.layers import Part
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What a step is put together from; times are per microbatch unless a name says otherwise."""

    microbatches: Array
    layers: Array  # of the busiest stage
    is_first: Flags  # the busiest stage has the model's first end
    is_last: Flags
    recompute_s: Array  # per layer
    gather_s: Array  # exposed ZeRO-3 communication, per layer
    gather_all_s: Array
    first_gather_s: Array  # of the ends, in all
    last_gather_s: Array
    overlap: Array  # share of gathers that may hide
    slack_s: Array  # what a layer could hide beyond its own gathers
    send_s: Array  # exposed
    send_all_s: Array
    wait_s: Array
    offload_s: Array
    bubble_s: Array  # per step
    reduce_s: Array  # per step, exposed
    reduce_all_s: Array
    update_s: Array  # per step


def breakdown(
    job: Job,
    strategies: Strategies,
    layer: Part,
    first: Part,
    last: Part,
    shape: Ints,
    pieces: Pieces,
    step_s: Array,
) -> dict[str, Array]:
    """What each cause adds to the step; `launch` is what the host's floor adds, the rest that remains."""
    runs = pieces.microbatches

    def costs(*names: str) -> Array:
        total = np.zeros(1)
        for name in names:
            middle, start, end = (getattr(part.costs, name) for part in (layer, first, last))
            total = total + _busiest(middle, start, end, shape, pieces)
        return np.asarray(runs * total)

    def exposed(name: str) -> Array:
        return np.asarray(
            runs * _busiest(getattr(layer, name), getattr(first, name), getattr(last, name), shape, pieces)
        )

    gathers = runs * (pieces.layers * pieces.gather_s + _end_gathers_s(job, first, last, shape, pieces))
    parts = {
        "matmul": costs("matmul_forward_s", "matmul_data_s", "matmul_weight_s"),
        "attention": costs("attention_forward_s", "attention_backward_s"),
        "streaming": costs("streaming_forward_s", "streaming_backward_s"),
        "recompute": runs * pieces.layers * pieces.recompute_s,
        "tp": exposed("tp_s"),
        "cp": exposed("cp_s"),
        "ep": exposed("ep_s"),
        "pp": runs * (pieces.send_s + pieces.wait_s),
        "dp": pieces.reduce_s + gathers,
        "offload": runs * pieces.offload_s,
        "tiers": np.zeros(1),
        "bubble": pieces.bubble_s,
        "optimizer": pieces.update_s,
        "overhead": np.full(len(strategies), job.stack.step_s),
    }
    return parts | {"launch": np.maximum(step_s - sum(parts.values(), start=np.zeros(1)), 0.0)}


def communication(
    strategies: Strategies, layer: Part, first: Part, last: Part, shape: Ints, pieces: Pieces
) -> dict[str, Array]:
    """Communication of the busiest stage in a step, hidden or not."""
    runs = pieces.microbatches
    ends = pieces.is_first * pieces.first_gather_s + pieces.is_last * pieces.last_gather_s
    gathers = runs * (pieces.layers * pieces.gather_all_s + ends)
    axes = {
        axis: runs * _busiest(getattr(layer, name), getattr(first, name), getattr(last, name), shape, pieces)
        for axis, name in (("tp", "tp_all_s"), ("cp", "cp_all_s"), ("ep", "ep_all_s"))
    }
    return axes | {"pp": runs * pieces.send_all_s, "dp": pieces.reduce_all_s + gathers}


def _busiest(layer: Array, first: Array, last: Array, shape: Ints, pieces: Pieces) -> Array:
    """A quantity summed over the busiest stage: its layers, and the ends that stand on it."""
    ends = pieces.is_first * first[shape] + pieces.is_last * last[shape]
    return np.asarray(pieces.layers * layer[shape] + ends)


def _end_gathers_s(job: Job, first: Part, last: Part, shape: Ints, pieces: Pieces) -> Array:
    total = np.zeros(len(shape))
    for part, on, gather in (
        (first, pieces.is_first, pieces.first_gather_s),
        (last, pieces.is_last, pieces.last_gather_s),
    ):
        work = part.forward_s[shape] + part.backward_s[shape]
        total = total + on * shown_s(work + pieces.slack_s, gather, pieces.overlap, job.stack.interference)
    return total
