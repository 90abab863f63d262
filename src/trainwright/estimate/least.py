"""A lower bound of step times that is found without layouts: it depends on shapes and pipelines alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link
from trainwright.cost.network import FAR_S
from trainwright.estimate.layers import least_layer_s
from trainwright.estimate.network import links as network_links
from trainwright.estimate.shapes import distinct_shapes
from trainwright.estimate.step import crowded
from trainwright.estimate.types import Job
from trainwright.plan.strategy import SCHEDULES, Strategies

Array = NDArray[np.float64]


def least_step_s(job: Job, strategies: Strategies) -> Array:
    """Seconds that no step is shorter than, however state is sharded, recomputed or offloaded.

    The fullest stage has at least the mean number of layers, and does them for every microbatch. With one
    chunk per stage the last stage waits for the first microbatch and the others for its last one; chunks wait
    for one chunk of each other stage. Between sites nothing is said: the bound is 0.
    """
    job = crowded(job)
    links = network_links(job)
    between_sites = any(np.any(link.latency_s - link.extra_s >= FAR_S) for link in links)
    if between_sites or not len(strategies):
        return np.zeros(len(strategies))
    layers, seconds = _layer_s(job, links, strategies)
    microbatches = job.global_batch / (strategies.dp * strategies.micro_batch)
    pp = strategies.pp
    turns = microbatches * (layers / pp)
    if not job.stack.balanced_stages:
        passes = strategies.schedule == SCHEDULES.index("1f1b")
        turns = np.maximum(turns, passes * ((microbatches - 1.0) * (layers // pp) + layers))
    in_chunks = (microbatches + (pp - 1.0) / strategies.vpp) * (layers / pp)
    turns = np.where(strategies.vpp > 1, in_chunks, turns)
    return np.asarray(turns * seconds)


def _layer_s(job: Job, links: Sequence[Link], strategies: Strategies) -> tuple[int, Array]:
    """The number of layers, and the least seconds of one: ops of experts have shapes of their own."""
    count = len(strategies)
    none, alone = (np.broadcast_to(np.int64(value), count) for value in (0, 1))
    shapes, shape = distinct_shapes(replace(strategies, ep=alone, etp=alone))
    layers, seconds = least_layer_s(job, links, shapes, experts=False)
    total = seconds[shape]
    if job.graph.sizes.get("experts"):
        own = replace(strategies, sp=none, cp_kind=none)
        if not strategies.order.any():  # then experts see how many ranks share tokens, not along which axis
            own = replace(own, tp=strategies.tp * strategies.cp, cp=alone)
        shapes, shape = distinct_shapes(own)
        total = total + least_layer_s(job, links, shapes, experts=True)[1][shape]
    return layers, total
