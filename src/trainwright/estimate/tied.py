"""Tied weights at both ends of a pipeline that lie at different sites: what their sums add to a step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, all_gather_s, all_reduce_s, reduce_scatter_s
from trainwright.estimate.ranks import Ranks
from trainwright.plan.strategy import Strategies

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """Tied parameters of a device, with their width on the wire and as weights, in bytes."""

    parameters: Array
    gradient_bytes: Array
    weight_bytes: Array


def tied_s(links: Sequence[Link], ranks: Ranks, strategies: Strategies, shard: Array, tied: Tied) -> Array:
    """What a step takes longer because copies at the other end are summed too, and with ZeRO-1 gathered.

    The embedding's gradients come last and its weights are needed first, so that nothing hides this. Sums go
    over all copies in one collective; where gradients are sharded, each shard is summed with its twin.
    """
    every, stride = (strategies.dp * strategies.cp).astype(float), strategies.tp.astype(float)
    own = np.where(strategies.zero >= 2, shard, 1.0)  # ranks that have summed shards of gradients already
    copies, apart = np.maximum(every / own, 1.0), stride * own
    here, both = ranks.span(copies, apart), ranks.span_at_ends(copies, apart)
    sent, held = tied.gradient_bytes * tied.parameters / own, tied.weight_bytes * tied.parameters
    summed = all_reduce_s(links, both, sent) - all_reduce_s(links, here, sent)
    scattered = reduce_scatter_s(links, both, sent) - all_gather_s(links, here, sent)
    renewed = all_gather_s(links, both, held) - all_gather_s(links, here, held)
    return np.maximum(np.where(strategies.zero == 1, scattered + renewed, summed), 0.0)
