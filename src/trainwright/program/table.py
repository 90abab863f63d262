"""The tasks of one step as arrays: what the simulator reads, however many there are."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Starts = NDArray[np.int64]

COMPUTE, COMMUNICATION, COPY = range(3)  # kinds of units
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "buffers")
FROM_THE_START = -1  # of a buffer: allocated before the step
ONCE = -1  # of a task: not of one microbatch, but of the whole step


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Tasks in lanes on units of places.

    A *place* is a class of devices that do the same work. It has *units* (compute, communication, copy), each
    of which runs one task at a time, to its end. A unit serves *lanes*: queues of tasks in fixed order. When
    a unit is free it starts the head of the first of its lanes (by lane number) whose inputs have all ended.
    While a task runs, compute on its place is slowed: it loses `slows` of its rate.
    """

    seconds: Floats  # by task
    slows: Floats
    lane: Ints
    label: Ints  # index into `labels`
    microbatch: Ints  # or ONCE
    first_input: Starts  # inputs of task t: inputs[first_input[t] : first_input[t + 1]]
    inputs: Ints  # tasks that must end first
    first_queued: Starts  # tasks of lane l in order: queue[first_queued[l] : first_queued[l + 1]]
    queue: Ints
    lane_unit: Ints  # by lane; lanes of one unit are neighbours
    unit_place: Ints  # by unit
    unit_kind: Ints
    buffer_place: Ints  # by buffer
    buffer_bytes: Floats
    buffer_category: Ints  # index into CATEGORIES
    buffer_from: Ints  # the task at whose start it is allocated, or FROM_THE_START
    first_reader: Starts
    readers: Ints  # a buffer is freed when the last of its readers ends; without readers, never
    labels: tuple[str, ...]
    causes: tuple[str, ...]  # of each label: what its time is counted as
    places: tuple[tuple[int, ...], ...]  # devices of each place

    def __len__(self) -> int:
        return len(self.seconds)
