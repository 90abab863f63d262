"""Memory of one device of a pipeline row: one function for each part."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalar_reference.blocks import ModelWork
from scalar_reference.rows import Row, deferred_wgrads, in_flight
from scalar_reference.state import Parameters, row_parameters, shard_groups, sharded, state_bytes
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes by part, named as `Estimates.memory_bytes` names them."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    reserve: float

    @property
    def total(self) -> float:
        """All of them."""
        state = self.weights + self.gradients + self.optimizer
        return state + self.activations + self.buffers + self.reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMemory:
    """What memory depends on."""

    job: Job
    strategy: Strategy
    work: ModelWork
    row: Row
    microbatches: float

    @property
    def owned(self) -> Parameters:
        """Parameters of the row."""
        return row_parameters(self.job, self.work, self.row)

    def use(self) -> MemoryUse:
        """Of one device of the row."""
        weights, gradients, optimizer = self.weights_bytes(), self.gradients_bytes(), self.optimizer_bytes()
        activations = self.activations_bytes()
        allocated = weights + gradients + optimizer + activations
        return MemoryUse(
            weights=weights,
            gradients=gradients,
            optimizer=optimizer,
            activations=activations,
            buffers=self.buffers_bytes(),
            reserve=self.job.stack.reserve_share * allocated,
        )

    def buffers_bytes(self) -> float:
        """The context, and one communicator for each axis that has several ranks."""
        s, stack = self.strategy, self.job.stack
        axes = [s.tp, s.pp, s.cp, s.ep, s.dp * s.cp]
        return stack.context_bytes + stack.communicator_bytes * len([axis for axis in axes if axis > 1])

    def weights_bytes(self) -> float:
        """Layers as they are stored, ends as they are computed with. ZeRO-3 holds its shard and what its
        stack gathers, never more than everything; with a pipeline some stacks keep everything gathered.
        """
        owned, width, s = self.owned, state_bytes(self.job, self.strategy), self.strategy
        layout = self.job.stack.capability.state
        ends = owned.ends
        everything = width.stored * (owned.both - ends) + width.weight * ends
        if s.zero < 3 or (layout.whole_with_pipeline and s.pp > 1):
            return everything
        of_ends = ends / shard_groups(s).shard
        shard = width.stored * (sharded(s, owned, 3) - of_ends) + width.weight * of_ends
        gathered = layout.gathered_units * self.work.layer.parameters
        if layout.whole_ends:
            gathered += ends
        return min(shard + width.weight * gathered, everything)

    def gradients_bytes(self) -> float:
        """Sharded from ZeRO-2 on, unless the stack keeps them whole; with one layer's before they are
        scattered, never more than the row's own, and buffers of reductions.
        """
        owned, s, layout = self.owned, self.strategy, self.job.stack.capability.state
        whole = layout.whole_gradients or (layout.whole_with_pipeline and s.pp > 1)
        kept = owned.both if whole else sharded(s, owned, 2)
        total = state_bytes(self.job, s).gradient * kept
        if s.dp * s.cp > 1:
            unit = min(self.work.layer.parameters, owned.both)
            total += layout.unit_gradient_bytes * unit if s.zero >= 2 else 0.0
            total += layout.bucket_bytes if s.zero >= 1 else 0.0
        return total

    def optimizer_bytes(self) -> float:
        """Sharded from ZeRO-1 on; nothing if it is offloaded."""
        offloaded = self.strategy.offload in ("optimizer", "both")
        return 0.0 if offloaded else self.optimizer_state_bytes()

    def optimizer_state_bytes(self) -> float:
        """Wherever it is; ends may have another optimizer than layers."""
        width, ends = state_bytes(self.job, self.strategy), Parameters(dense=self.owned.ends)
        on_ends = sharded(self.strategy, ends, 1)
        on_layers = sharded(self.strategy, self.owned, 1) - on_ends
        return width.optimizer * on_layers + width.end_optimizer * on_ends

    def activations_bytes(self) -> float:
        """Kept for backward by layers and ends, and for deferred weight gradients; of the layer at work;
        logits.
        """
        kept = self.kept_by_layers_bytes() + self.kept_for_wgrads_bytes() + self.kept_by_ends_bytes()
        return kept + max(self.workspace_bytes(), self.logits_bytes())

    def kept_by_layers_bytes(self) -> float:
        """Of all microbatches in flight; of offloaded layers, what is on its way: two layers, or one where a
        layer stays to be followed by it.
        """
        alone = self.strategy.pp == 1
        kept = kept_for_backward_bytes(
            self.job, self.strategy, self.work, self.row.layers, with_gathered=alone
        )
        flight = in_flight(self.strategy, self.row, self.microbatches)
        if self.strategy.offload not in ("activations", "both"):
            return flight * kept
        staying = self.row.layers - moved_layers(self.strategy, self.row.layers)
        on_their_way = 2 if staying == 0 else 1
        return (flight * staying + on_their_way) * kept / max(self.row.layers, 1)

    def kept_for_wgrads_bytes(self) -> float:
        """Inputs of GEMMs and gradients of their results, counted as what layers save for backward."""
        saved = self.job.stack.activations * self.work.layer.saved_bytes
        return deferred_wgrads(self.strategy, self.row, self.microbatches) * self.row.layers * saved

    def kept_by_ends_bytes(self) -> float:
        """Embedding and head recompute nothing and stay on the device."""
        ends = self.work.first.saved_bytes * self.row.is_first + self.work.last.saved_bytes * self.row.is_last
        held = in_flight(self.strategy, self.row, self.microbatches)
        return (held + deferred_wgrads(self.strategy, self.row, self.microbatches)) * ends

    def workspace_bytes(self) -> float:
        """Gradients of two hidden states; recomputed, the activations of one layer or of modules."""
        stack, work = self.job.stack, self.work
        used = 2.0 * work.largest_hidden_bytes + 0.4 * work.largest_saved_bytes
        if self.strategy.recompute == "full":
            used += stack.activations * work.largest_saved_bytes
            used += gathered_inputs_bytes(self.job, self.strategy, work)
        else:
            used += stack.activations * work.largest_remade_bytes
        return stack.workspace * used

    def logits_bytes(self) -> float:
        """Of one microbatch, on the row with the head."""
        if not self.row.is_last:
            return 0.0
        s, sizes, stack = self.strategy, self.job.graph.sizes, self.job.stack
        element_bytes = 4.0 if s.precision == "fp32" else 2.0
        tokens = self.work.last.hidden_bytes / element_bytes / sizes["hidden"]
        vocabulary = sizes.get("vocab", 0) / (s.tp if stack.splits_logits else 1)
        return stack.live_logits_bytes * tokens * vocabulary


def gathered_inputs_bytes(job: Job, strategy: Strategy, work: ModelWork) -> float:
    """Of a layer: what some stacks keep whole of inputs gathered under sequence parallelism."""
    if not strategy.sp:
        return 0.0
    others = 1.0 - 1.0 / strategy.tp
    return job.stack.gathered_inputs * work.layer.tp_sums * work.layer.hidden_bytes * others


def kept_for_backward_bytes(
    job: Job, strategy: Strategy, work: ModelWork, layers: float, *, with_gathered: bool
) -> float:
    """What layers keep of one microbatch; if some of them recompute fully, the others keep everything."""
    whole = job.stack.activations * work.layer.saved_bytes
    extra = gathered_inputs_bytes(job, strategy, work) if with_gathered else 0.0
    if strategy.recompute != "full":
        return layers * (job.stack.activations * work.layer.kept_bytes + extra)
    recomputed = min(strategy.recompute_layers or layers, layers)
    return recomputed * work.layer.kept_bytes + (layers - recomputed) * whole


def moved_layers(strategy: Strategy, layers: float) -> float:
    """Of the layers of a row, those whose activations go to the host if any do."""
    return min(strategy.offload_layers or layers, layers)


def peak_memory(
    job: Job, strategy: Strategy, work: ModelWork, rows: Sequence[Row], microbatches: float
) -> MemoryUse:
    """Of the row that needs most."""
    uses = [
        RowMemory(job=job, strategy=strategy, work=work, row=row, microbatches=microbatches).use()
        for row in rows
    ]
    return max(uses, key=lambda use: use.total)


def host_bytes(
    job: Job, strategy: Strategy, work: ModelWork, rows: Sequence[Row], microbatches: float
) -> float:
    """What offloading keeps on the host for one device, at most: the largest optimizer state of any row, and
    the first row's microbatches of the layers of the fullest.
    """
    memories = [
        RowMemory(job=job, strategy=strategy, work=work, row=row, microbatches=microbatches) for row in rows
    ]
    total = 0.0
    if strategy.offload in ("optimizer", "both"):
        total += max(each.optimizer_state_bytes() for each in memories)
    if strategy.offload in ("activations", "both"):
        layers = max(row.layers for row in rows)
        held = in_flight(strategy, rows[0], microbatches)
        kept = kept_for_backward_bytes(job, strategy, work, layers, with_gathered=False)
        total += held * kept * moved_layers(strategy, layers) / layers
    return total
