"""Models to come, over width, length, batch and tensor parallelism: each timed as one layer of a profile."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.study.algorithm_edge import BASE_MEMORY_BYTES, parameters_of, required_tp
from trainwright.study.layer_time import Baseline, LayerTime, Sizes, layer_time
from trainwright.study.switches import Switches

Array = NDArray[np.float64]
K = 1024
HIDDEN = tuple(float(K * 2**i) for i in range(7))  # 1K to 64K
SEQ = tuple(float(K * 2**i) for i in range(4))  # 1K to 8K
BATCH = (1.0, 4.0)
TP = tuple(float(2**i) for i in range(2, 9))  # 4 to 256
FASTER = (1.0, 2.0, 4.0)  # compute against communication: flop-vs-bw
ROOMIER = (1.0, 2.0, 4.0)  # memory of a device
BANDS = {1.0: (0.20, 0.50), 2.0: (0.30, 0.65), 4.0: (0.40, 0.75)}  # published shares at the required TP
SHARD = 256.0  # columns of hidden on a device in the published pairs of H and TP: 4K on 16 to 64K on 256


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Points:
    """Some models, and what a layer of each takes."""

    sizes: Sizes
    time: LayerTime
    needed_tp: Array  # by memory alone; what a model is timed at may be less, see `memory_points`

    @property
    def count(self) -> int:
        """How many."""
        return int(self.sizes.hidden.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Least, median and most of some shares, and how many lie in the published band."""

    least: float
    median: float
    most: float
    inside: int
    count: int
    band: tuple[float, float]

    @property
    def holds(self) -> bool:
        """Whether all lie in the band."""
        return self.inside == self.count


def all_points(baseline: Baseline, switches: Switches) -> Points:
    """Every combination in which a device has at least one attention head."""
    hidden, seq, batch, tp = (each.ravel() for each in np.meshgrid(HIDDEN, SEQ, BATCH, TP, indexing="ij"))
    can = tp <= hidden / baseline.head
    return _timed(baseline, switches, (hidden[can], seq[can], batch[can], tp[can]), 1.0)


def memory_points(baseline: Baseline, switches: Switches, roomier: float = 1.0) -> Points:
    """Every width, length and batch at the TP that memory requires: the next power of two.

    At least 4, at most 256, and one head a device: where memory needs more, a pipeline must give it.
    """
    hidden, seq, batch = _models()
    needed = np.exp2(np.ceil(np.log2(needed_degree(baseline, switches, hidden, roomier)) - 1e-9))
    tp = np.clip(needed, TP[0], np.minimum(TP[-1], hidden / baseline.head))
    return _timed(baseline, switches, (hidden, seq, batch, tp), roomier)


def shard_points(baseline: Baseline, switches: Switches) -> Points:
    """Every width, length and batch with 256 columns of hidden on a device: the pairs that were published."""
    hidden, seq, batch = _models()
    tp = np.minimum(hidden / SHARD, hidden / baseline.head)
    return _timed(baseline, switches, (hidden, seq, batch, tp), 1.0)


def needed_degree(baseline: Baseline, switches: Switches, hidden: Array, roomier: float) -> Array:
    """The TP that memory requires, p/s from the base, over the stages of a pipeline."""
    growth = roomier * baseline.memory_bytes / BASE_MEMORY_BYTES
    return np.maximum(required_tp(parameters_of(hidden), growth) / switches.stages, 1.0)


def spread(shares: Array, faster: float) -> Spread:
    """How shares lie, at one ratio of compute to communication."""
    low, high = BANDS[faster]
    inside = int(((shares >= low) & (shares <= high)).sum())
    return Spread(
        least=float(shares.min()), median=float(np.median(shares)), most=float(shares.max()), inside=inside,
        count=int(shares.size), band=(low, high),
    )  # fmt: skip


def _models() -> tuple[Array, Array, Array]:
    hidden, seq, batch = (each.ravel() for each in np.meshgrid(HIDDEN, SEQ, BATCH, indexing="ij"))
    return hidden, seq, batch


def _timed(baseline: Baseline, switches: Switches, sizes: tuple[Array, ...], roomier: float) -> Points:
    hidden, seq, batch, tp = sizes
    layers = Sizes(hidden=hidden, seq=seq, batch=batch, tp=tp)
    return Points(
        sizes=layers, time=layer_time(baseline, layers, switches),
        needed_tp=needed_degree(baseline, switches, hidden, roomier),
    )  # fmt: skip
