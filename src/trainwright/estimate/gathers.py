"""A layer's forward and backward with what they show of ZeRO's communication."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.overlap import shown_s
from trainwright.estimate.layers import Part
from trainwright.estimate.layouts import Layouts
from trainwright.estimate.types import Job
from trainwright.plan.strategy import SCHEDULES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """A layer of a stage that never waits; and as it adds to a microbatch that passes through many stages."""

    forward_s: Array
    inputs_s: Array  # the backward, without weight gradients that are put off
    weights_s: Array  # those
    gathers_s: Array  # of all of it, what ZeRO's communication adds
    passing_forward_s: Array
    passing_inputs_s: Array
    idle_forward_s: Array  # what the forward waits for gathers: it hides as much of anything else
    idle_inputs_s: Array
    idle_turn_s: Array  # what a chunk's backward waits for them where a forward is at work before it


def layer_times(
    job: Job,
    part: Part,
    layouts: Layouts,
    strategies: Strategies,
    shape: Ints,
    layout: Ints,
    forward: Array,
    again_s: Array,
    send_s: Array,
) -> LayerTimes:
    """A layer with a `forward` of so many seconds that does `again_s` of work again, on a stage that waits
    `send_s` for what it receives.

    Weights are gathered while the layer before is at work, the first ones of a stage while it waits;
    gradients are scattered while the layer after is, or with weight gradients if a schedule puts them off.
    """
    backward = part.backward_s[shape] + again_s
    put_off = strategies.schedule == SCHEDULES.index("zb")
    weights = np.where(put_off, part.backward_s[shape] - part.without_weight_s[shape], 0.0)
    inputs = backward - weights
    zero = np.zeros(1)
    if not (strategies.zero >= 2).any():
        return LayerTimes(
            forward_s=forward, inputs_s=inputs, weights_s=weights, gathers_s=np.zeros(len(strategies)),
            passing_forward_s=forward, passing_inputs_s=inputs, idle_forward_s=zero, idle_inputs_s=zero,
            idle_turn_s=zero,
        )  # fmt: skip
    share, i = strategies.overlap.astype(float) * job.stack.dp_overlap, job.stack.interference
    ahead, behind = layouts.gather_forward_s[layout], layouts.gather_backward_s[layout]
    scatter = layouts.scatter_s[layout]
    later = np.where(put_off, scatter, zero)
    beside = behind + scatter - later
    chunk = np.maximum(layouts.stages.middle[layout] / strategies.vpp, 1.0)
    there, here = forward + job.graph.passes * send_s / chunk, inputs + send_s / chunk
    out, back = shown_s(there, ahead, share, i), shown_s(here, beside, share, i)
    # Where forward and backward meet, each hides what the other needs.
    turned = shown_s(there, beside, share, i)
    met = turned + shown_s(here, ahead, share, i)
    back_mean = back + np.where(put_off, 0.0, (met - out - back) / chunk)
    last = shown_s(weights, later, share, i)
    lasting = 1.0 - share * (1.0 - i)  # what blocks or slows does so always
    fixed_out, fixed_back = lasting * ahead, lasting * beside
    rest = (chunk - 1.0) / chunk
    return LayerTimes(
        forward_s=forward + out,
        inputs_s=inputs + back_mean,
        weights_s=weights + last,
        gathers_s=out + back_mean + last,
        passing_forward_s=forward + fixed_out + rest * (out - fixed_out),
        passing_inputs_s=inputs + fixed_back + rest * (back - fixed_back),
        idle_forward_s=out - fixed_out,
        idle_inputs_s=back - fixed_back,
        idle_turn_s=np.where(put_off, 0.0, turned - fixed_back),
    )
