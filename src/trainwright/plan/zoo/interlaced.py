"""Interlaced pipeline: vocabularies over all devices, between the steps of a pipeline over the same."""

from typing import Any

from trainwright.model.graph import Graph
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.zoo.counts import parse_counts
from trainwright.plan.zoo.structured import REST, structured


def interlaced(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    pp: int = REST,
    counts: str = "",
    forward: float = 1.0,
    backward: float = 2.0,
    **knobs: Any,
) -> Plan:
    """Embedding and head, which tie if the model ties them, have a part on every device; layers are stages.

    Of a model with two stacks the layers are stages in order, the encoder's first, and both embeddings are
    looked up when a microbatch enters. `forward` and `backward` are how long those of a stage take.
    """
    options = {"forward": forward, "backward": backward}
    staging = Staging(schedule="interlaced", options=options, counts=parse_counts(counts))
    return structured(graph, devices, batch, pp=pp, staging=staging, **knobs)
