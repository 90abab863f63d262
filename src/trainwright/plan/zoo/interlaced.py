"""Interlaced pipeline: vocabularies over all devices, between the steps of a pipeline over the same."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.counts import best_counts, parse_counts
from trainwright.plan.zoo.structured import REST, fill, structured
from trainwright.plan.zoo.uneven_stages import layer_flops


def interlaced(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    pp: int = REST,
    counts: str = "",
    seq: int = 2048,
    forward: float = 1.0,
    backward: float = 2.0,
    **knobs: Any,
) -> Plan:
    """Embedding and head, which tie if the model ties them, have a part on every device; layers are stages.

    Of a model with two stacks the layers are stages in order, the encoder's first, and both embeddings are
    looked up when a microbatch enters. Layers that differ are cut by their FLOPs at `seq` tokens, unless
    `counts` says how many each stage has. `forward` and `backward` are how long those of a stage take.
    """
    pp = fill(devices, pp=pp, **knobs).pp
    flops = layer_flops(graph, seq, vocabulary=False)
    found = parse_counts(counts) or (best_counts(flops, pp) if len(set(flops)) > 1 else ())
    options = {"forward": forward, "backward": backward}
    staging = Staging(schedule="interlaced", options=options, counts=found)
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
