"""Sends from stage to stage of a pipeline: over the network of a site, and over slow links between sites."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, send_s
from trainwright.cost.network import FAR_S
from trainwright.estimate.ranks import Ranks

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
_MANY_BYTES = 1e9  # enough to tell the slope of a send


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """Latency and seconds per byte of a send to the next stage; and what one to another site takes more."""

    latency_s: Array
    s_per_byte: Array
    more_latency_s: Array  # 0 where stages share a site, or where each has one of its own
    more_s_per_byte: Array
    leaves: NDArray[np.bool_]  # the pipeline stands at several sites
    borders: Array  # between stages at different sites
    row: Array  # of the last stage before the first of them

    def take(self, where: Ints) -> "Sends":
        """Those at some indices."""
        return Sends(**{each.name: getattr(self, each.name)[where] for each in fields(self)})

    def near_s(self, size_bytes: Array) -> Array:
        """One send to a stage at the same site."""
        return self.latency_s + size_bytes * self.s_per_byte

    def more_s(self, size_bytes: Array) -> Array:
        """What a send to another site takes more."""
        return self.more_latency_s + size_bytes * self.more_s_per_byte


def build_sends(links: Sequence[Link], ranks: Ranks, pp: Ints) -> Sends:
    """The sends of pipelines of `pp` stages.

    Borders inside a site are charged by the distance of stages, as constants were fitted. What tells sites
    apart is the latency of links, not what software adds to it.
    """
    stride, apart = ranks.to_next_stage(), ranks.between_ends()
    near, far = _line(links, stride), _line(links, apart)
    bare = [replace(link, latency_s=link.latency_s - link.extra_s, extra_s=0.0) for link in links]
    leaves = (pp > 1) & (_line(bare, apart)[0] >= FAR_S)
    site = np.ones(len(pp))
    for link in bare:
        inside = np.full(len(pp), float(link.inside))
        site = np.where(_line(bare, inside - 1.0)[0] < FAR_S, inside, site)
    rows = np.maximum(np.floor(site / stride), 1.0)  # of one site
    return Sends(
        latency_s=near[0],
        s_per_byte=near[1],
        more_latency_s=np.where(leaves, far[0] - near[0], 0.0),
        more_s_per_byte=np.where(leaves, far[1] - near[1], 0.0),
        leaves=leaves,
        borders=np.where(leaves, np.clip(np.floor(apart / site), 1.0, np.maximum(pp - 1.0, 1.0)), 0.0),
        row=np.clip(rows - 1.0, 0.0, np.maximum(pp - 2.0, 0.0)),
    )


def _line(links: Sequence[Link], stride: Array) -> tuple[Array, Array]:
    """Latency and seconds per byte of a send to the device `stride` away."""
    latency = send_s(links, stride, np.zeros(len(stride)))
    much = send_s(links, stride, np.full(len(stride), _MANY_BYTES))
    return latency, (much - latency) / _MANY_BYTES
