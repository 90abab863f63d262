"""Activations on their way to the host and back: what a stage shows of the copies of its layers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.estimate.gathers import LayerTimes
from trainwright.plan.strategy import SCHEDULES, Strategies

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Copies of a layer's activations. Two are on their way out at most, one on its way back ahead of its
    use; so an action of n layers waits for n−2 out and for n−1 back, if they take longer than its layers.
    If only the first m of its layers move theirs, it waits for m−1 out and for m back.
    """

    one_s: Array  # one layer, one way
    forward_s: Array  # a layer's forward
    receive_s: Array  # what an action waits for what it receives
    idle_s: Array  # what a backward after a forward waits for ZeRO's communication, its first copy meanwhile
    out_s: Array  # what a copy out adds to a layer that waits for it
    out_beside_s: Array  # what it adds to a layer that does not
    back_s: Array
    back_beside_s: Array
    in_turn: Array  # share of actions that do not follow another of their kind
    overlap: Array
    counted: Array  # layers of an action that move theirs, the first ones; 0: all

    def shown_s(self, layers: Array, chunks: Array, turns: Array) -> tuple[Array, Array]:
        """What a stage shows of copies out and back per microbatch; its layers are so many chunks, of which
        the forward of `turns` is followed by its own backward: their last layer stays.
        """
        n = layers / chunks
        stay = np.minimum(turns, layers)
        lone = self.in_turn * chunks
        # The first copy back goes beside the action before, which waits for copies out itself.
        out = n * self.out_beside_s + np.maximum(n - 2.0, 0.0) * (self.out_s - self.out_beside_s)
        first = np.maximum(self.one_s - n * self.forward_s - out - self.receive_s - self.idle_s, 0.0)
        out, back = (
            (layers - stay) * self.out_beside_s
            + (layers - lone * np.minimum(n, 2.0)) * (self.out_s - self.out_beside_s),
            (layers - stay) * self.back_beside_s
            + (layers - lone * np.minimum(n, 1.0)) * (self.back_s - self.back_beside_s)
            + self.overlap * self.in_turn * (chunks - turns) * first,
        )
        return self._with_counted(n, chunks, out, back)

    def passing_s(self, layers: Array) -> tuple[Array, Array]:
        """The same of an action that has waited: its first copy back is there, and nobody waits for its last
        one out if it hides.
        """
        more = np.maximum(layers - 1.0, 0.0)
        beside = np.where(self.overlap > 0, more, layers)
        waits = np.maximum(layers - 2.0, 0.0)
        out = beside * self.out_beside_s + waits * (self.out_s - self.out_beside_s)
        return self._with_counted(layers, np.ones(1), out, more * self.back_s)

    def _with_counted(self, layers: Array, actions: Array, out: Array, back: Array) -> tuple[Array, Array]:
        """What actions expose where not all of their layers move: the layers that stay follow the last copy
        out, and go before the first copy back.
        """
        some = (self.counted > 0) & (self.counted < layers)
        if not some.any():
            return out, back
        # A mean of layers may have a fraction: one layer stays at least.
        moved = np.minimum(self.counted, np.maximum(layers - 1.0, 0.0))
        waits = np.maximum(moved - 1.0, 0.0)
        own = moved * self.out_beside_s + waits * (self.out_s - self.out_beside_s)
        return np.where(some, actions * own, out), np.where(some, actions * moved * self.back_s, back)


def build_copies(
    one_s: Array,
    layer: LayerTimes,
    strategies: Strategies,
    microbatches: Array,
    receive_s: Array,
    interference: float,
) -> Copies:
    """The copies of a layer: hidden behind it, or blocking if nothing overlaps."""
    on = strategies.overlap.astype(float)
    shown, beside = [], []
    for work, idle in (
        (layer.forward_s, layer.idle_forward_s), (layer.inputs_s, layer.idle_inputs_s),
    ):  # fmt: skip
        slowed = np.maximum(interference * np.minimum(one_s, work) - idle, 0.0)
        shown.append(np.where(on > 0, np.maximum(slowed, one_s - work), one_s))
        beside.append(np.where(on > 0, slowed, one_s))
    warm = np.where(strategies.vpp > 1, np.minimum(strategies.pp / microbatches, 1.0), 0.0)
    first = strategies.schedule == SCHEDULES.index("gpipe")
    return Copies(
        one_s=one_s,
        forward_s=layer.forward_s,
        receive_s=receive_s,
        idle_s=layer.idle_turn_s,
        out_s=shown[0],
        out_beside_s=beside[0],
        back_s=shown[1],
        back_beside_s=beside[1],
        in_turn=np.where(first, 1.0 / microbatches, 1.0 - warm),
        overlap=on,
        counted=strategies.offload_layers / strategies.vpp,
    )
