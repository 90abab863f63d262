"""The time of all microbatches of a step: the longest path through the rows of a pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalar_reference.layer_passes import EndPass, LayerPass
from scalar_reference.offload import ActivationCopies
from scalar_reference.rows import Row
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPass:
    """Seconds of one row per microbatch, if it never waits; and as a microbatch passes."""

    forward_s: float
    dgrad_s: float
    wgrad_s: float
    passing_forward_s: float
    passing_dgrad_s: float
    received_s: float  # of all this
    offload_s: tuple[float, float]  # forward and backward

    @property
    def total_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.dgrad_s + self.wgrad_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What rows are made of."""

    job: Job
    strategy: Strategy
    rows: Sequence[Row]
    layer: LayerPass
    first: EndPass
    last: EndPass
    copies: ActivationCopies | None
    send_s: float  # exposed
    microbatches: float

    def total_s(self) -> float:
        """All microbatches."""
        if self.strategy.vpp > 1:
            return self._interleaved_s()
        if self.strategy.pp == 1:
            return self.microbatches * self.row_pass(self.rows[0]).total_s
        passes, most = [self.row_pass(row) for row in self.rows], max(row.layers for row in self.rows)
        # Rows between the ends that lack a layer hold nobody up: an end has as many layers, and an end.
        slow = [row.place for row in self.rows if row.layers == most or row.is_first or row.is_last]
        return max(self._path_s(passes, place) for place in slow)

    def row_pass(self, row: Row) -> RowPass:
        """One row: its layers, its ends, what it receives, what copies add."""
        vpp, layer, alone = self.strategy.vpp, self.layer, self.strategy.pp == 1
        first = self.first if row.is_first else EndPass()
        last = self.last if row.is_last else EndPass()
        inputs = 0 if alone else vpp - row.is_first
        gradients = 0 if alone else vpp - row.is_last
        received_s = (self.job.graph.passes * inputs * self.send_s, gradients * self.send_s)
        offload_s = passing_s = (0.0, 0.0)
        if self.copies:
            at_once = self.strategy.schedule != "gpipe" or self.microbatches == 1
            offload_s = self.copies.exposed_s(row.layers, vpp, int(row.is_last and at_once))
            layers = sum(each.layers for each in self.rows)
            one_s = self.copies.passing_s(layers / self.strategy.pp / vpp)
            passing_s = (vpp * one_s[0], vpp * one_s[1])
        ends_s = (first.forward_s + last.forward_s, first.dgrad_s + last.dgrad_s)
        return RowPass(
            forward_s=row.layers * layer.forward_s + ends_s[0] + offload_s[0] + received_s[0],
            dgrad_s=row.layers * layer.dgrad_s + ends_s[1] + offload_s[1] + received_s[1],
            wgrad_s=row.layers * layer.wgrad_s + first.wgrad_s + last.wgrad_s,
            passing_forward_s=row.layers * layer.passing_forward_s + ends_s[0] + passing_s[0] + received_s[0],
            passing_dgrad_s=row.layers * layer.passing_dgrad_s + ends_s[1] + passing_s[1] + received_s[1],
            received_s=sum(received_s),
            offload_s=offload_s,
        )

    def fullest(self) -> RowPass:
        """A row without ends that has as many layers as any, whether or not there is one."""
        most = max(self.rows, key=lambda row: row.layers)
        between = Row(place=most.place, chunks=most.chunks, is_first=False, is_last=False)
        return self.row_pass(between)

    def _path_s(self, passes: Sequence[RowPass], at: int) -> float:
        """The path that stays on row `at` for all microbatches: it fills forward through the rows before,
        and drains backward through them.

        To begin with, the row goes forward for some microbatches before the first one's backward is back from
        the rows after it: `ahead` of them, in 1F1B. Its last deferred weight gradients, of as many
        microbatches as there are rows before it and one, overlap the drain; then the first row's are
        left.
        """
        row, before, after = passes[at], passes[:at], passes[at + 1 :]
        turns = self.microbatches - 1
        ahead = 0.0 if self.strategy.schedule == "gpipe" else min(len(after), turns)
        fill_s = sum(each.passing_forward_s for each in before)
        there_and_back_s = sum(each.passing_forward_s + each.passing_dgrad_s for each in after)
        drain_s = sum(each.passing_dgrad_s for each in before) + passes[0].wgrad_s
        left_s = (1 + min(at, turns)) * row.wgrad_s
        others_s = fill_s + there_and_back_s - ahead * row.forward_s + max(drain_s - left_s, 0.0)
        return self.microbatches * row.total_s + max(others_s, 0.0)

    def _interleaved_s(self) -> float:
        """Rows go from chunk to chunk in step, each as long as the slowest row's, and start one by one."""
        vpp, fullest = self.strategy.vpp, self.fullest()
        last = self.row_pass(self.rows[-1])
        # The last chunk's last layer is not offloaded.
        stays_s = sum(fullest.offload_s) - sum(last.offload_s)
        layer_s = self.layer.forward_s + self.layer.dgrad_s
        microbatch_s = 0.0
        for chunk in range(vpp):
            times = [row.chunks[chunk] * layer_s for row in self.rows]
            if chunk == 0:
                times[0] += self.first.forward_s + self.first.dgrad_s
            if chunk == vpp - 1:
                times[-1] += self.last.forward_s + self.last.dgrad_s - stays_s
            microbatch_s += max(times)
        microbatch_s += sum(fullest.offload_s) + fullest.received_s
        start_s = (fullest.passing_forward_s + fullest.passing_dgrad_s) / vpp
        return self.microbatches * microbatch_s + (self.strategy.pp - 1) * start_s
