"""A layer's forward and backward in a pipeline row, with recomputation and ZeRO's gathers."""

from dataclasses import dataclass

from scalar_reference.parts import PartTime, exposed_s
from scalar_reference.state import Gathers
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPass:
    """Seconds of one layer of a row that never waits; and as a microbatch passes through rows that do.

    A row that waits for its input has gathered its first layer's weights by then.
    """

    forward_s: float
    dgrad_s: float  # the backward, without weight gradients that are deferred
    wgrad_s: float  # those
    passing_forward_s: float
    passing_dgrad_s: float
    idle_forward_s: float  # of the forward: waits for gathers, in which nothing computes
    idle_dgrad_s: float
    idle_turn_s: float  # of a chunk's first backward after a forward, which hides less or more


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPass:
    """Seconds of the embedding or the head, with its gathers."""

    forward_s: float = 0.0
    dgrad_s: float = 0.0
    wgrad_s: float = 0.0


def recompute_s(job: Job, strategy: Strategy, layer: PartTime, layers: int) -> float:
    """What the mean layer does again in its backward; of recycled passes only the last one."""
    if strategy.recompute != "full":
        return layer.repeated_s
    per_row = layers / strategy.pp
    recomputed = min(strategy.recompute_layers or per_row, per_row)
    return recomputed / per_row * layer.forward_s / job.graph.passes


def layer_pass(
    job: Job,
    strategy: Strategy,
    layer: PartTime,
    recomputed_s: float,
    gathers: Gathers,
    layers_per_chunk: float,
    send_s: float,
) -> LayerPass:
    """A layer of a chunk of `layers_per_chunk`, whose row waits `send_s` for each input.

    A layer's weights are gathered, and the gradients of the one after it scattered, while it computes. At the
    first layer of a chunk the compute before is of the other direction, unless gradients are deferred.
    """
    i, share = job.stack.interference, job.stack.dp_overlap * strategy.overlap
    deferred = strategy.schedule == "zb"
    wgrad_s = layer.wgrad_s if deferred else 0.0
    dgrad_s = layer.backward_s + recomputed_s - wgrad_s
    ahead_s = gathers.forward_s
    back_s = gathers.backward_s + (0.0 if deferred else gathers.scatter_s)
    n = max(layers_per_chunk, 1.0)
    hides_forward_s = layer.forward_s + job.graph.passes * send_s / n
    hides_dgrad_s = dgrad_s + send_s / n

    exposed_forward_s = exposed_s(hides_forward_s, ahead_s, share, i)
    exposed_dgrad_s = exposed_s(hides_dgrad_s, back_s, share, i)
    mean_dgrad_s, idle_turn_s = exposed_dgrad_s, 0.0
    if not deferred:
        idle_turn_s = max((1.0 - i) * share * back_s - hides_forward_s, 0.0)
        crossed_s = exposed_s(hides_forward_s, back_s, share, i) + exposed_s(hides_dgrad_s, ahead_s, share, i)
        mean_dgrad_s += (crossed_s - exposed_forward_s - exposed_dgrad_s) / n
    exposed_wgrad_s = exposed_s(wgrad_s, gathers.scatter_s, share, i) if deferred else 0.0

    never_hidden = 1.0 - share + share * i
    idle_forward_s = exposed_forward_s - never_hidden * ahead_s
    idle_dgrad_s = exposed_dgrad_s - never_hidden * back_s
    return LayerPass(
        forward_s=layer.forward_s + exposed_forward_s,
        dgrad_s=dgrad_s + mean_dgrad_s,
        wgrad_s=wgrad_s + exposed_wgrad_s,
        passing_forward_s=layer.forward_s + exposed_forward_s - idle_forward_s / n,
        passing_dgrad_s=dgrad_s + exposed_dgrad_s - idle_dgrad_s / n,
        idle_forward_s=idle_forward_s,
        idle_dgrad_s=idle_dgrad_s,
        idle_turn_s=idle_turn_s,
    )


def end_pass(
    job: Job,
    strategy: Strategy,
    end: PartTime,
    gathers: Gathers,
    layer: PartTime,
    recomputed_s: float,
    layer_gathers: Gathers,
) -> EndPass:
    """An end; its gathers overlap its own compute, and what its neighbor layer has left to overlap."""
    share = job.stack.dp_overlap * strategy.overlap
    left_s = max(layer.forward_s - share * layer_gathers.forward_s, 0.0)
    behind_s = layer_gathers.backward_s + layer_gathers.scatter_s
    left_s += max(layer.backward_s + recomputed_s - share * behind_s, 0.0)
    work_s = end.forward_s + end.backward_s + left_s
    added_s = exposed_s(work_s, gathers.total_s, share, job.stack.interference)
    wgrad_s = end.wgrad_s if strategy.schedule == "zb" else 0.0
    return EndPass(forward_s=end.forward_s, dgrad_s=end.backward_s - wgrad_s + added_s, wgrad_s=wgrad_s)
