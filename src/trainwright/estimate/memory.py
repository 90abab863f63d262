"""Memory of the fullest device of each strategy, by what it holds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.in_flight import HeldMicrobatches
from trainwright.estimate.layers import Part
from trainwright.estimate.layouts import Layouts
from trainwright.estimate.shapes import Shapes
from trainwright.estimate.types import Job
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, OFFLOADS, PRECISIONS, RECOMPUTES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# Gradients of a layer's widest tensors (a gated feed-forward's product, gate and up) that are alive at once
# in its backward, of what the layer keeps: 0.43 in the simulated Llama 3 8B.
BACKWARD_SHARE = 0.4

# Which choices of `offload` move optimizer state, and which move activations.
MOVES_OPTIMIZER = np.array([name in ("optimizer", "both") for name in OFFLOADS])
MOVES_ACTIVATIONS = np.array([name in ACTIVATION_OFFLOADS for name in OFFLOADS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Bytes per layer and microbatch at each shape: kept for backward by recomputation, and in work."""

    rows: Ints  # by number of a recomputation: its row in the three that follow
    kept: Array  # over (row, shape)
    gathered: Array  # over (row, shape): kept besides where there is no pipeline
    working: Array  # over (row, shape): the layer being worked on
    first_end: Array  # over shapes: kept by the first end of the model
    last_end: Array  # by the last
    logits: Array  # over shapes: logits and their copies, of one microbatch at a time


def activation_table(
    job: Job, layer: Part, first: Part, last: Part, shapes: Shapes, recomputes: Ints
) -> Activations:
    """What activations take at each shape under each recomputation, as the stack keeps them."""
    stack, costs, tp, sp = job.stack, layer.costs, shapes.tp, shapes.sp
    element = np.where(shapes.precision == PRECISIONS.index("fp32"), 4.0, 2.0)
    whole = costs.tp_reductions * costs.hidden_bytes * (1.0 - 1.0 / tp)
    extra = stack.gathered_inputs * np.where(sp > 0, whole, 0.0)
    rows = np.zeros(len(RECOMPUTES), dtype=np.int64)
    rows[recomputes] = np.arange(len(recomputes))
    full = (recomputes == RECOMPUTES.index("full"))[:, None]
    kept = np.where(full, 1.0, stack.activations) * costs.kept_bytes
    largest = stack.activations * layer.largest.saved_bytes
    gradient = 2.0 * layer.largest.hidden_bytes + BACKWARD_SHARE * layer.largest.saved_bytes
    vocab = float(job.graph.sizes.get("vocab", 0)) / (tp if stack.splits_logits else 1.0)
    tokens = last.costs.hidden_bytes / element / float(job.graph.sizes["hidden"])
    return Activations(
        rows=rows,
        kept=kept,
        gathered=np.where(full, 0.0, extra),
        working=stack.workspace
        * (gradient + np.where(full, largest + extra, stack.activations * layer.largest.remade_bytes)),
        first_end=first.costs.saved_bytes,
        last_end=last.costs.saved_bytes,
        logits=stack.live_logits_bytes * tokens * vocab,
    )


def memory_parts(
    job: Job,
    strategies: Strategies,
    layouts: Layouts,
    layout: Ints,
    table: Activations,
    shape: Ints,
    held: tuple[HeldMicrobatches, HeldMicrobatches, HeldMicrobatches],
) -> tuple[dict[str, Array], Array]:
    """Bytes on the fullest device, of its parts: on the first stage, one between the ends, or the last.
    And of its activations, those that wait for backward.

    A microbatch of which only weight gradients are left holds inputs of GEMMs and gradients of their results:
    about what it keeps without recomputation (84 to 121 % of that on 18 catalog models).
    """
    choice = table.rows[strategies.recompute]
    alone = strategies.pp == 1
    kept, saved = table.kept[choice, shape], table.kept[RECOMPUTES.index("none"), shape]
    if job.stack.gathered_inputs:
        kept = kept + np.where(alone, table.gathered[choice, shape], 0.0)
    working = table.working[choice, shape]
    stays = ~MOVES_OPTIMIZER[strategies.offload]
    away = MOVES_ACTIVATIONS[strategies.offload]
    first, last, logits = table.first_end[shape], table.last_end[shape], table.logits[shape]
    stages = layouts.stages
    ends = (first + np.where(alone, last, 0.0), np.zeros(1), last)
    # Logits are freed before the backward of the last layer begins.
    last_once = np.maximum(working, logits)
    once = (np.where(alone, last_once, working), working, last_once)
    activations, waiting, totals = [], [], []
    for layers, end, other, count, state in zip(
        (stages.first[layout], stages.middle[layout], stages.last[layout]),
        ends, once, held, layouts.states, strict=True,
    ):  # fmt: skip
        body = kept_by_layers(table, strategies, shape, layers, kept)
        # Of those offloaded, one layer is on its way while the next one works, or one that stays.
        stay = layers - offloaded_layers(strategies, layers)
        here = count.in_flight * stay + 2.0 - np.minimum(stay, 1.0)
        waits = np.where(away, here * body / np.maximum(layers, 1.0), count.in_flight * body)
        waits = waits + count.in_flight * end
        if count.deferred.any():
            waits = waits + count.deferred * (layers * saved + end)
        used = waits + other
        activations.append(used)
        waiting.append(waits)
        totals.append(used + (state.weights + state.gradients)[layout] + state.optimizer[layout] * stays)
    fullest = np.where(alone, 0, np.argmax(totals, axis=0))
    index = fullest * len(stages.middle) + layout
    optimizer = np.concatenate([state.optimizer for state in layouts.states])[index] * stays
    weights = np.concatenate([state.weights for state in layouts.states])[index]
    gradients = np.concatenate([state.gradients for state in layouts.states])[index]
    chosen = np.choose(fullest, activations)
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": chosen,
        "buffers": job.stack.context_bytes + job.stack.communicator_bytes * communicators(strategies),
        "reserve": job.stack.reserve_share * (weights + gradients + optimizer + chosen),
    }, np.choose(fullest, waiting) if job.cluster.expanded else chosen


def communicators(strategies: Strategies) -> Array:
    """Parallel axes along which a device communicates; data parallelism spans dp and cp."""
    axes = (strategies.tp, strategies.pp, strategies.cp, strategies.ep, strategies.dp * strategies.cp)
    return np.asarray(np.sum([axis > 1 for axis in axes], axis=0, dtype=float))


def fullest_row(table: Activations, strategies: Strategies, shape: Ints, last: Array) -> Array:
    """The row between the ends that holds most where weight gradients are deferred, given the last of those
    with most layers.

    Each row defers one microbatch more than the row before it and has one less under way. So the last holds
    most, unless modules keep more than they free (Swin's attention biases) and it stays on the device.
    """
    kept = table.kept[table.rows[strategies.recompute], shape]
    saved = table.kept[table.rows[RECOMPUTES.index("none")], shape]
    more = (kept > saved) & ~MOVES_ACTIVATIONS[strategies.offload]
    return np.where(more, np.minimum(last, 1.0), last)


def kept_by_layers(
    table: Activations, strategies: Strategies, shape: Ints, layers: Array, kept: Array
) -> Array:
    """Bytes that so many layers keep for backward, of which `recompute_layers` recompute if that is set."""
    some = strategies.recompute_layers > 0
    if not some.any():
        return layers * kept
    whole = np.maximum(layers - strategies.recompute_layers, 0.0)
    saved = table.kept[table.rows[RECOMPUTES.index("none")], shape]
    return np.where(some, (layers - whole) * kept + whole * saved, layers * kept)


def offloaded_layers(strategies: Strategies, layers: Array) -> Array:
    """How many of a stage's layers move activations to the host: `offload_layers`, or all; none that stay."""
    counted = strategies.offload_layers
    moved = np.where(counted > 0, np.minimum(counted, layers), layers)
    return np.where(MOVES_ACTIVATIONS[strategies.offload], moved, 0.0)


def host_bytes(
    strategies: Strategies, layouts: Layouts, layout: Ints, table: Activations, shape: Ints, held: Array
) -> Array:
    """Bytes that offloading puts on the host per device."""
    if not strategies.offload.any():
        return np.zeros(len(strategies))
    state = np.maximum.reduce([each.optimizer for each in layouts.states])[layout]
    kept = table.kept[table.rows[strategies.recompute], shape]
    layers = layouts.stages.middle[layout]
    body = held * kept_by_layers(table, strategies, shape, layers, kept)
    share = offloaded_layers(strategies, layers) / np.maximum(layers, 1.0)
    return np.asarray(MOVES_OPTIMIZER[strategies.offload] * state + share * body)
