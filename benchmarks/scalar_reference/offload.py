"""Copies of activations to the host and back, overlapped with the layers of a row."""

from dataclasses import dataclass

from scalar_reference.layer_passes import LayerPass
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCost:
    """What one layer's copy adds to a layer that waits for it, and to one that does not."""

    awaited_s: float
    overlapped_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationCopies:
    """Two copies are on their way out at most, one on its way back ahead of its use: a pass of n layers waits
    for n−2 out and n−1 back. Where only its first `limit` layers go, for limit−1 out and limit back.
    """

    copy_s: float  # of one layer, one way
    forward_s: float  # of one layer
    receive_s: float  # what a pass waits for its input
    idle_s: float  # what a backward that follows a forward waits for ZeRO's gathers and scatters
    out: CopyCost
    back: CopyCost
    alternating: float  # share of passes that follow one of the other direction
    overlap: bool
    limit: float  # layers of a pass that are copied; 0: all

    def exposed_s(self, layers: float, chunks: int, staying: int) -> tuple[float, float]:
        """Of a row and microbatch, forward and backward. Of `staying` chunks the backward follows the forward
        at once: their last layer is not copied.
        """
        n = layers / chunks
        if 0 < self.limit < n:
            out_s, back_s = self._limited_s(n)
            return chunks * out_s, chunks * back_s
        lone = self.alternating * chunks  # passes that wait for no copies of the one before
        moved = layers - min(staying, layers)
        out_s = moved * self.out.overlapped_s
        out_s += (layers - lone * min(n, 2.0)) * (self.out.awaited_s - self.out.overlapped_s)
        back_s = moved * self.back.overlapped_s
        back_s += (layers - lone * min(n, 1.0)) * (self.back.awaited_s - self.back.overlapped_s)
        if self.overlap:
            back_s += self.alternating * (chunks - staying) * self._first_back_s(n)
        return out_s, back_s

    def _first_back_s(self, n: float) -> float:
        """What a backward waits for its first copy, which began with the forward before it."""
        forward_s = n * (self.forward_s + self.out.overlapped_s)
        forward_s += max(n - 2.0, 0.0) * (self.out.awaited_s - self.out.overlapped_s)
        return max(self.copy_s - forward_s - self.receive_s - self.idle_s, 0.0)

    def passing_s(self, n: float) -> tuple[float, float]:
        """Of a pass of n layers that has waited, so that its first copy back is there; nobody waits for its
        last copy out if copies overlap.
        """
        if 0 < self.limit < n:
            return self._limited_s(n)
        unawaited = max(n - 1.0, 0.0) if self.overlap else n
        out_s = unawaited * self.out.overlapped_s + max(n - 2.0, 0.0) * (
            self.out.awaited_s - self.out.overlapped_s
        )
        return out_s, max(n - 1.0, 0.0) * self.back.awaited_s

    def _limited_s(self, n: float) -> tuple[float, float]:
        """Of a pass with layers that stay, at least one: they come after the last copy out and before the
        first back.
        """
        copies = min(self.limit, max(n - 1.0, 0.0))
        awaited = max(copies - 1.0, 0.0)
        out_s = awaited * self.out.awaited_s + (copies - awaited) * self.out.overlapped_s
        return out_s, copies * self.back.awaited_s


def activation_copies(
    job: Job, strategy: Strategy, layer: LayerPass, layer_bytes: float, microbatches: float, send_s: float
) -> ActivationCopies | None:
    """The copies of a layer that keeps `layer_bytes`; None if activations are not offloaded."""
    if strategy.offload not in ("activations", "both"):
        return None
    copy_s = layer_bytes / (job.cluster.network.host_bytes_per_s * job.efficiency.host_link)

    def cost(compute_s: float, idle_s: float) -> CopyCost:
        if not strategy.overlap:
            return CopyCost(awaited_s=copy_s, overlapped_s=copy_s)
        slowed_s = max(job.stack.interference * min(copy_s, compute_s) - idle_s, 0.0)
        return CopyCost(awaited_s=max(slowed_s, copy_s - compute_s), overlapped_s=slowed_s)

    if strategy.schedule == "gpipe":  # only the last forward is followed by a backward
        alternating = 1.0 / microbatches
    elif strategy.vpp > 1:  # a round of forwards comes first
        alternating = 1.0 - min(strategy.pp / microbatches, 1.0)
    else:
        alternating = 1.0
    return ActivationCopies(
        copy_s=copy_s,
        forward_s=layer.forward_s,
        receive_s=send_s,
        idle_s=layer.idle_turn_s,
        out=cost(layer.forward_s, layer.idle_forward_s),
        back=cost(layer.dgrad_s, layer.idle_dgrad_s),
        alternating=alternating,
        overlap=strategy.overlap,
        limit=strategy.offload_layers / strategy.vpp,
    )
