"""How layers lie on pipeline stages: as even as they go, with the ends relieved where they do not."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from trainwright.plan.strategy import Strategies

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Layers on a middle stage and on the two end stages."""

    middle: Array
    first: Array
    last: Array
    row: Array  # of the last stage in the middle that has as many layers as any
    empty: NDArray[np.bool_]  # some stage would have nothing to do

    def take(self, where: NDArray[np.int64]) -> "Stages":
        """Those at some indices."""
        return Stages(**{each.name: getattr(self, each.name)[where] for each in fields(self)})


def stage_layout(layers: int, strategies: Strategies, head_layers: Array | None = None) -> Stages:
    """Layers per stage: equal if they divide; if they do with embedding and head counted as layers, so;
    else the remainder goes to middle stages first. With `head_layers`, the head's work in layers, stages are
    cut so that each has as much work, and the last gets the layers that remain.
    """
    pp = strategies.pp.astype(float)
    if head_layers is not None:
        middle = np.minimum(np.ceil((layers + head_layers) / pp - 1e-9), layers)
        rest = np.maximum(layers - middle * (pp - 1), 0.0)
        # After the last layer come two blocks, the final norm and the head: further stages stay empty.
        left = pp - np.ceil(layers * pp / (layers + head_layers))
        last = np.where(pp > 1, rest, layers)
        row = np.clip(np.floor(layers / middle) - 1.0, 0.0, np.maximum(pp - 2, 0.0))
        return Stages(middle=middle, first=middle, last=last, row=row, empty=left > 2)
    chunks = pp * strategies.vpp
    even = np.floor(layers / pp)
    rest = layers - even * pp
    relieved = ((layers + 2) % chunks == 0) & (layers % chunks != 0) & (pp > 2)
    middle = np.where(relieved, (layers + 2) / pp, even + (rest > 0))
    first = np.where(relieved, middle - 1.0, even + (rest > np.maximum(pp - 2, 0)))
    last = np.where(relieved, middle - 1.0, even + (rest > pp - 1))
    middle = np.where(pp <= 2, first, middle)
    row = np.where((rest > 0) & ~relieved, np.minimum(rest, pp - 2), pp - 2)
    return Stages(middle=middle, first=first, last=last, row=np.maximum(row, 0.0), empty=pp > layers + 2)
