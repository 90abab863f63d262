"""Weights of slices, where other workers or another algorithm go on from them."""

import torch

from trainwright.algorithm.ist import Ist
from trainwright.algorithm.merge import rescale
from trainwright.algorithm.protocol import Algorithm, Seat, Values
from trainwright.algorithm.talk import converse
from trainwright.runtime.apart.job import Job


def fitted(job: Job, seat: Seat, values: Values, by: Algorithm, workers: int) -> dict[str, torch.Tensor]:
    """Merged weights that so many workers trained as slices by an algorithm, for this one to begin with.

    They are scaled where the whole model is trained or used from now on, and left alone for further slices.
    All workers of the group call alike.
    """
    assert isinstance(by, Ist)
    if _slices(job.algorithm, seat):
        return dict(values)
    batch = job.part(seat.first, seat.rank, seat.workers)
    return converse(rescale(job.network, by.cut(job.network.anatomy, workers), by.scale, values, batch))


def _slices(algorithm: Algorithm, seat: Seat) -> bool:
    """Whether a worker that takes a seat trains a slice."""
    if not isinstance(algorithm, Ist) or seat.workers == 1:
        return False
    return algorithm.rounds(seat.steps).phase(seat.first) == "apart"
