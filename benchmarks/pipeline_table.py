"""A table like those that lowering makes: 1F1B over stages of layers, with sums inside and sends between."""

import numpy as np
from numpy.typing import NDArray

from trainwright.program.table import COMMUNICATION, COMPUTE, FROM_THE_START, Table

LABELS = (
    *("layer/attention F", "layer/attention.sum F", "layer/ffn F", "layer/ffn.sum F", "stage/send F"),
    *("layer/ffn B", "layer/ffn.sum B", "layer/attention B", "layer/attention.sum B", "stage/send B"),
)
CAUSES = ("matmul", "tp", "matmul", "tp", "pp") * 2
SECONDS = (1.0e-3, 4e-4, 1.5e-3, 4e-4, 2e-4, 3e-3, 4e-4, 2e-3, 4e-4, 2e-4)
SEND = 4  # label of a forward send; those of backward follow
LANES = (0, 1, 0, 1, 2, 0, 1, 0, 1, 3)  # of a stage: compute, sums, sends forward, sends backward
Tasks = NDArray[np.int64]


def pipeline_table(stages: int, microbatches: int, layers: int, slows: float = 0.1) -> Table:
    """Each stage has a compute unit, and a communication unit of three lanes that slows it by `slows`.

    Tasks are numbered by stage, direction, microbatch, and place in the run of 4 tasks a layer and a send.
    """
    run = 4 * layers + 1
    shape = (stages, 2, microbatches, run)
    stage, direction, microbatch, step = np.indices(shape).reshape(4, -1)
    label = 5 * direction + np.where(step == run - 1, SEND, step % 4)
    lane = 4 * stage + np.array(LANES)[label]
    turn = np.where(
        direction == 0,
        microbatch + np.maximum(microbatch - (stages - 1 - stage), 0),
        microbatch + np.minimum(microbatch + stages - stage, microbatches),
    )
    queue = np.lexsort((step, turn, lane))
    first_input, inputs = _inputs(np.arange(len(stage)).reshape(shape))
    moved = np.array(CAUSES)[label] != "matmul"
    forward, backward = (
        each.ravel() for each in np.arange(len(stage)).reshape(shape)[:, :, :, -1].swapaxes(0, 1)
    )
    return Table(
        seconds=np.array(SECONDS)[label], slows=np.where(moved, slows, 0.0), lane=lane.astype(np.int32),
        label=label.astype(np.int32), microbatch=microbatch.astype(np.int32),
        first_input=first_input, inputs=inputs,
        first_queued=np.append(0, np.cumsum(np.bincount(lane, minlength=4 * stages))),
        queue=queue.astype(np.int32),
        lane_unit=np.repeat(np.arange(2 * stages), [1, 3] * stages).astype(np.int32),
        unit_place=np.repeat(np.arange(stages), 2).astype(np.int32),
        unit_kind=np.tile([COMPUTE, COMMUNICATION], stages).astype(np.int32),
        buffer_place=np.append(np.arange(stages), stage[forward]).astype(np.int32),
        buffer_bytes=np.repeat([10e9, 1e9], [stages, len(forward)]),
        buffer_category=np.repeat([0, 3], [stages, len(forward)]).astype(np.int32),
        buffer_from=np.append(np.full(stages, FROM_THE_START), forward).astype(np.int32),
        first_reader=np.append(np.zeros(stages, np.int64), np.arange(len(forward) + 1)),
        readers=backward.astype(np.int32),
        labels=LABELS, causes=CAUSES, places=tuple((each,) for each in range(stages)),
    )  # fmt: skip


def _inputs(tasks: Tasks) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Each task waits for the one before it; the first of a run for the other stage, and for its forward."""
    before = np.full((*tasks.shape, 2), -1)
    before[..., 1:, 0] = tasks[..., :-1]
    before[1:, 0, :, 0, 0] = tasks[:-1, 0, :, -1]
    before[:-1, 1, :, 0, 0] = tasks[1:, 1, :, -1]
    before[:, 1, :, 0, 1] = tasks[:, 0, :, -2]
    before = before.reshape(-1, 2)
    first = np.append(0, np.cumsum((before >= 0).sum(axis=1)))
    return first, before[before >= 0].astype(np.int32)
