"""Memory of the fullest device of each strategy, by what it holds."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.constants import Stack
from trainwright.estimate.stages import Stages
from trainwright.estimate.types import Job
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, RECOMPUTES, SCHEDULES, Strategies

Array = NDArray[np.float64]
Columns = Mapping[str, Array]


def gradient_sizes(stack: Stack, strategies: Strategies) -> tuple[Array, Array]:
    """Bytes per parameter of a gradient as it is accumulated, and as it is sent: fp16 runs keep both in fp16."""
    half = strategies.precision == PRECISIONS.index("fp16")
    kept = np.where(half, min(stack.gradient_bytes, stack.fp16_gradient_bytes), stack.gradient_bytes)
    return kept, np.where(half, min(stack.reduce_bytes, stack.fp16_gradient_bytes), stack.reduce_bytes)


def owned_parameters(
    stages: Stages, layer: Columns, first: Columns, last: Columns, strategies: Strategies
) -> tuple[Array, Array]:
    """Dense and expert parameters on the device of the stage that holds most, before ZeRO shards them."""
    ends = np.where(
        strategies.pp == 1,
        first["dense_parameters"] + last["dense_parameters"],
        np.maximum(first["dense_parameters"], last["dense_parameters"]),
    )
    most = np.where(strategies.pp == 1, stages.middle, np.maximum(stages.first, stages.last))
    dense = np.maximum(most * layer["dense_parameters"] + ends, stages.middle * layer["dense_parameters"])
    return dense, stages.middle * layer["expert_parameters"]


def memory_parts(
    job: Job, strategies: Strategies, stages: Stages, layer: Columns, first: Columns, last: Columns
) -> dict[str, Array]:
    """Bytes on the fullest device, of its parts: on the first, the second or the last stage, or the only one."""
    held = _in_flight(strategies, stages)
    none = dict.fromkeys(first, np.zeros(len(strategies)))
    both = {name: first[name] + last[name] for name in first}
    if job.graph.tied:
        shared = np.minimum(first["dense_parameters"], last["dense_parameters"])
        both["dense_parameters"] = both["dense_parameters"] - shared
    candidates = [
        _stage_bytes(job, strategies, stages.first, layer, first, held),
        _stage_bytes(job, strategies, stages.middle, layer, none, np.maximum(held - 1.0, 1.0)),
        _stage_bytes(job, strategies, stages.last, layer, last, np.ones(len(strategies))),
    ]
    alone = _stage_bytes(job, strategies, stages.middle, layer, both, held)
    logits = _logits_bytes(job, strategies, last)
    candidates[2]["activations"] = candidates[2]["activations"] + logits
    alone["activations"] = alone["activations"] + logits
    totals = np.stack([sum(parts.values(), start=np.zeros(1)) for parts in candidates])
    fullest = np.argmax(totals, axis=0)
    return {
        name: np.where(strategies.pp == 1, alone[name], np.choose(fullest, [each[name] for each in candidates]))
        for name in alone
    }


def _in_flight(strategies: Strategies, stages: Stages) -> Array:
    """Microbatches whose activations the first stage holds at once (chunks of it, for interleaving)."""
    pp, vpp = strategies.pp.astype(float), strategies.vpp.astype(float)
    steady = np.where(vpp > 1, ((vpp + 1.0) * pp - 1.0) / vpp, pp)
    held = np.minimum(steady, stages.microbatches)
    return np.where(strategies.schedule == SCHEDULES.index("gpipe"), stages.microbatches, held)


def _stage_bytes(
    job: Job, strategies: Strategies, layers: Array, layer: Columns, end: Columns, in_flight: Array
) -> dict[str, Array]:
    stack = job.stack
    ranks = strategies.dp * strategies.cp
    shard = np.where(strategies.shard > 0, np.minimum(strategies.shard, ranks), ranks).astype(float)
    expert_shard = np.maximum(shard * strategies.tp / (strategies.ep * strategies.etp), 1.0)
    dense = layers * layer["dense_parameters"] + end["dense_parameters"]
    expert = layers * layer["expert_parameters"]

    def share(stage: int) -> Array:
        """Parameters kept when state is sharded from ZeRO `stage` on."""
        on = strategies.zero >= stage
        return dense / np.where(on, shard, 1.0) + expert / np.where(on, expert_shard, 1.0)

    gathered = np.where(strategies.zero == 3, 2.0 * (layer["dense_parameters"] + layer["expert_parameters"]), 0.0)
    off = strategies.offload
    optimizer = stack.optimizer_bytes * share(1) * ~np.isin(off, [OFFLOADS.index("optimizer"), OFFLOADS.index("both")])
    layer = _as_kept(job, strategies, layer)
    activations = _activation_bytes(strategies, layers, layer, end, in_flight) + _working_bytes(job, strategies, layer)
    weights = 2.0 * (share(3) + gathered)
    gradients = gradient_sizes(stack, strategies)[0] * share(2)
    used = weights + gradients + optimizer + activations
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "activations": activations,
        "buffers": np.full(len(strategies), stack.context_bytes),
        "reserve": stack.fragmentation * used,
    }


def _as_kept(job: Job, strategies: Strategies, layer: Columns) -> Columns:
    """A layer's columns with what the stack keeps beyond the least: unfused copies, gathered inputs."""
    stack = job.stack
    whole = layer["tp_reductions"] * layer["hidden_bytes"] * (1.0 - 1.0 / strategies.tp)
    extra = stack.gathered_inputs * np.where((strategies.sp > 0) & (strategies.pp == 1), whole, 0.0)
    kept = {name: stack.activations * layer[name] + extra for name in ("saved_bytes", "selective_bytes")}
    return {**layer, **kept}


def _kept_per_layer(strategies: Strategies, layer: Columns) -> Array:
    """Bytes that a layer keeps for backward per microbatch under the strategy's recomputation."""
    full = strategies.recompute == RECOMPUTES.index("full")
    selective = strategies.recompute == RECOMPUTES.index("selective")
    return np.where(full, layer["input_bytes"], np.where(selective, layer["selective_bytes"], layer["saved_bytes"]))


def _activation_bytes(
    strategies: Strategies, layers: Array, layer: Columns, end: Columns, in_flight: Array
) -> Array:
    kept = layers * _kept_per_layer(strategies, layer)
    partial = (strategies.recompute == RECOMPUTES.index("full")) & (strategies.recompute_layers > 0)
    untouched = np.maximum(layers - strategies.recompute_layers, 0.0)
    mixed = (layers - untouched) * layer["input_bytes"] + untouched * layer["saved_bytes"]
    kept = np.where(partial, mixed, kept)
    off = np.isin(strategies.offload, [OFFLOADS.index("activations"), OFFLOADS.index("both")])
    return in_flight * np.where(off, _kept_per_layer(strategies, layer) * 2.0, kept + end["saved_bytes"])


def _working_bytes(job: Job, strategies: Strategies, layer: Columns) -> Array:
    """The layer being worked on: what it saves while it is recomputed, and gradients of its activations."""
    full = strategies.recompute == RECOMPUTES.index("full")
    return job.stack.workspace * (np.where(full, layer["saved_bytes"], 0.0) + 2.0 * layer["hidden_bytes"])


def _logits_bytes(job: Job, strategies: Strategies, last: Columns) -> Array:
    """Logits, their copies and their gradient, which live together at the turn from forward to backward."""
    share: float | Array = float(job.graph.sizes.get("vocab", 0)) / float(job.graph.sizes["hidden"])
    share = share / strategies.tp if job.stack.splits_logits else share
    return job.stack.logits_bytes / 2.0 * last["hidden_bytes"] * share


def host_bytes(job: Job, strategies: Strategies, stages: Stages, layer: Columns) -> Array:
    """Bytes that offloading puts on the host per device."""
    shard = np.where(strategies.zero > 0, strategies.dp * strategies.cp, 1).astype(float)
    state = stages.middle * (layer["dense_parameters"] + layer["expert_parameters"]) / shard * job.stack.optimizer_bytes
    kept = _in_flight(strategies, stages) * stages.middle * _kept_per_layer(strategies, layer)
    optimizer = np.isin(strategies.offload, [OFFLOADS.index("optimizer"), OFFLOADS.index("both")])
    activations = np.isin(strategies.offload, [OFFLOADS.index("activations"), OFFLOADS.index("both")])
    return np.where(optimizer, state, 0.0) + np.where(activations, kept, 0.0)
