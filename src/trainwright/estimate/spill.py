"""What strategies that need more than a device's own memory pay for what lies in expanded tiers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cluster.types import Cluster
from trainwright.cost.tiers import (
    TABLES,
    Expansion,
    Shares,
    added_s,
    tier_shares,
    tier_traffic_bytes,
    with_working,
)
from trainwright.estimate.layers import Part
from trainwright.estimate.layouts import Layouts
from trainwright.estimate.memory import MOVES_OPTIMIZER, Activations
from trainwright.estimate.types import Job
from trainwright.plan.strategy import RECOMPUTES, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Touched = dict[str, Array]
Phase = tuple[Touched, Array, Array]  # what it touches by class, how long it computes, all that it moves

# What tables show: parts of memory, each of one or two classes of tensors.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "weights": ("weights", TABLES), "gradients": ("gradients",), "optimizer": ("optimizer",),
    "activations": ("kept", "working"),
}  # fmt: skip
TRAFFIC = "traffic"


def tier_keys(cluster: Cluster) -> tuple[tuple[str, str], ...]:
    """What is told of expanded tiers: of each, the parts of memory in it, and the bytes that a step moves."""
    return tuple((tier.name, part) for tier in cluster.expanded for part in (*_PARTS, TRAFFIC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spill:
    """What expanded tiers add, of the mean layer and of the two ends, per microbatch; and to the update."""

    expansion: Expansion
    sizes: Mapping[str, Array]
    shares: Shares
    forward_s: tuple[Array, Array, Array]
    backward_s: tuple[Array, Array, Array]
    update_s: Array
    accesses: Sequence[tuple[Touched, Touched]]  # forward and backward, of each part
    update: Touched

    def lying(self, microbatches: Array, layers: Array) -> Iterator[tuple[tuple[str, str], Array]]:
        """Bytes by tier and part of memory, and what a step moves between each tier and the device."""
        for tier, name in enumerate(self.expansion.names):
            for part, classes in _PARTS.items():
                parts = (self.sizes[each] * self.shares[each][tier] for each in classes)
                yield (name, part), sum(parts, start=np.zeros(1))
            moved = tier_traffic_bytes(self.shares, self.update)[tier]
            for both, times in zip(self.accesses, (layers, np.ones(1), np.ones(1)), strict=True):
                for touched in both:
                    moved = moved + microbatches * times * tier_traffic_bytes(self.shares, touched)[tier]
            yield (name, TRAFFIC), moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Strategies that need expanded memory, and the tables that say what they move."""

    job: Job
    expansion: Expansion
    parts: tuple[Part, Part, Part]  # mean layer, first end, last end
    layouts: Layouts
    table: Activations
    strategies: Strategies
    shape: Ints
    layout: Ints
    recompute_s: Array  # per layer

    def spill(self, memory: Mapping[str, Array], kept: Array) -> Spill:
        """What it costs if the fullest device needs `memory`; every stage is taken to need as much.

        Of its activations, `kept` wait for backward.
        """
        sizes = _class_sizes(self.job, memory, kept)
        shares = tier_shares(self.expansion, sizes, memory["buffers"])
        phases = [(self._forward(which), self._backward(which)) for which in range(3)]
        added = [
            tuple(added_s(self.expansion, shares, busy, moved, touched) for touched, busy, moved in both)
            for both in phases
        ]
        update = self._update()
        every = sum(update.values(), start=np.zeros(1))
        return Spill(
            expansion=self.expansion,
            sizes=sizes,
            shares=shares,
            forward_s=tuple(each[0] for each in added),  # type: ignore[arg-type]
            backward_s=tuple(each[1] for each in added),  # type: ignore[arg-type]
            update_s=added_s(self.expansion, shares, np.zeros(1), every, update),
            accesses=[(_moves(out), _moves(back)) for out, back in phases],
            update=update,
        )

    def _forward(self, which: int) -> Phase:
        costs, touched, passes = self.parts[which].costs, self._touched(which), self.job.graph.passes
        busy = costs.matmul_forward_s + costs.attention_forward_s + costs.streaming_forward_s
        own = {"weights": passes * touched["weights"], "kept": touched["kept"]}
        return own, busy[self.shape], costs.traffic_forward_bytes[self.shape]

    def _backward(self, which: int) -> Phase:
        """With what is done again: all that a forward moves, or what cheap work does in its time."""
        c, touched = self.parts[which].costs, self._touched(which)
        busy = (
            c.matmul_data_s + c.matmul_weight_s + c.attention_backward_s + c.streaming_backward_s
        )[self.shape]  # fmt: skip
        moved, again = c.traffic_backward_bytes[self.shape], np.zeros(1)
        if which == 0:
            full = self.strategies.recompute == RECOMPUTES.index("full")
            forward = self.parts[0].forward_s[self.shape] / self.job.graph.passes
            again = np.where(full, self.recompute_s / forward, 0.0)
            cheap = np.where(full, 0.0, self.recompute_s * self.expansion.own_bytes_per_s)
            moved = moved + again * c.traffic_forward_bytes[self.shape] / self.job.graph.passes + cheap
            busy = busy + self.recompute_s
        own = {
            "weights": (1.0 + again) * touched["weights"],
            "gradients": 2.0 * touched["gradients"],
            "kept": touched["kept"],
        }
        return own, busy, moved

    def _touched(self, which: int) -> Touched:
        """Bytes of each class that a microbatch meets once in a layer, or in an end of the model."""
        accessed, table, shape = self.layouts.accessed, self.table, self.shape
        assert accessed is not None
        kept = table.kept[table.rows[self.strategies.recompute], shape]
        return {
            "weights": accessed.weights[which][self.layout],
            "gradients": accessed.gradients[which][self.layout],
            "kept": (kept, table.first_end[shape], table.last_end[shape])[which],
        }

    def _update(self) -> Touched:
        """Bytes that the device reads and writes in its update, by class."""
        accessed, stays = self.layouts.accessed, ~MOVES_OPTIMIZER[self.strategies.offload]
        assert accessed is not None
        return {name: stays * each[self.layout] for name, each in accessed.update.items()}


def _moves(phase: Phase) -> Touched:
    touched, _, moved = phase
    return with_working(touched, moved)


def _class_sizes(job: Job, memory: Mapping[str, Array], kept: Array) -> dict[str, Array]:
    """Bytes by class of tensors, each with its part of the reserve."""
    more = 1.0 + job.stack.reserve_share
    return {
        TABLES: np.zeros(len(kept)),
        **{name: more * memory[name] for name in ("weights", "gradients", "optimizer")},
        "kept": more * kept,
        "working": more * np.maximum(memory["activations"] - kept, 0.0),
    }
