"""What depends only on the layout of devices: stages, data-parallel communication, update, model state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainwright.cost.collective import Link, all_gather_s, all_reduce_s
from trainwright.cost.state import host_update_bytes_per_s, state_widths, update_s
from trainwright.estimate.distinct import distinct
from trainwright.estimate.layers import Part
from trainwright.estimate.ranks import Ranks, build_ranks
from trainwright.estimate.sends import Sends, build_sends
from trainwright.estimate.stages import Stages, stage_layout
from trainwright.estimate.tied import Tied, tied_s
from trainwright.estimate.types import Job
from trainwright.plan.mapping import AXES
from trainwright.plan.strategy import PRECISIONS, Strategies

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_KNOBS = ("dp", "tp", "cp", "pp", "vpp", "ep", "etp", "zero", "shard", "precision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Parameters that one device of a stage owns before ZeRO shards them."""

    dense: Array
    expert: Array
    ends: Array  # of `dense`, those of embedding and head


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Bytes of model state on a device of one stage."""

    weights: Array
    gradients: Array
    optimizer: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Accessed:
    """Bytes of state that a device has of a layer, of the first end and of the last; and of an update."""

    weights: tuple[Array, Array, Array]
    gradients: tuple[Array, Array, Array]
    update: Mapping[str, Array]  # read and written, by class of tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """One column per distinct layout. States are of the first, second, last stage; an only one is first."""

    stages: Stages
    states: tuple[State, State, State]
    gather_forward_s: Array  # ZeRO-3, per layer and microbatch
    gather_backward_s: Array
    scatter_s: Array  # gradients of ZeRO-2 and 3, per layer and microbatch
    gather_s: Array  # all three
    first_gather_s: Array  # ZeRO-3, of the two ends, per microbatch
    last_gather_s: Array
    reduce_s: Array  # gradients, per step
    renew_s: Array  # updated weights of ZeRO-1 and 2, per step
    reduce_overlap: Array  # share of both that may hide
    tied_s: Array  # sums of weights at both ends, at different sites, per step: nothing hides them
    edge: Array  # share of the first stage's weights in its first layer and before it: nothing hides them
    update_s: Array  # the optimizer's traffic
    update_moved_s: Array  # what offloading it adds
    sends: Sends
    wait_s: Array  # per microbatch of a pipeline
    accessed: Accessed | None  # where there is expanded memory


def layout_rows(strategies: Strategies) -> tuple[Ints, Ints]:
    """One strategy of each distinct layout of a batch, and for each strategy the index of its own."""
    return distinct(strategies, (*_KNOBS, "order") if strategies.order.any() else _KNOBS)


def build_layouts(
    job: Job,
    links: Sequence[Link],
    layers: int,
    parts: tuple[Part, Part, Part],
    strategies: Strategies,
    shape: Ints,
) -> Layouts:
    """The layouts of strategies, one column each, whose shapes are those at `shape`."""
    sizes = {axis: getattr(strategies, axis) for axis in AXES}
    ranks = build_ranks(links, sizes, strategies.order)
    return _Builder(
        job=job, links=links, ranks=ranks, strategies=strategies, parts=parts, shape=shape,
        widths=_widths(job, strategies.precision),
    ).layouts(layers)  # fmt: skip


def shard_ranks(strategies: Strategies) -> Array:
    """Ranks that share one copy of the sharded state."""
    ranks = strategies.dp * strategies.cp
    return np.where(strategies.shard > 0, np.minimum(strategies.shard, ranks), ranks).astype(float)


def expert_shard_ranks(strategies: Strategies) -> Array:
    """Ranks that share one copy of the experts' sharded state: of `shard_ranks`, those with equal experts."""
    return np.maximum(shard_ranks(strategies) * strategies.tp / (strategies.ep * strategies.etp), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """`StateWidths` of each strategy."""

    weight: Array
    stored: Array
    unsharded: Array
    optimizer: Array
    end_optimizer: Array
    gradient: Array
    reduced: Array
    host_traffic: Array


def _widths(job: Job, precision: Ints) -> _Widths:
    family = job.cluster.device.family
    every = [state_widths(job.stack, family, name) for name in PRECISIONS]
    return _Widths(
        **{name: np.array([getattr(each, name) for each in every])[precision] for name in _Widths.__slots__}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Builder:
    job: Job
    links: Sequence[Link]
    ranks: Ranks
    strategies: Strategies
    parts: tuple[Part, Part, Part]  # mean layer, first end, last end
    shape: Ints
    widths: _Widths

    def layouts(self, layers: int) -> Layouts:
        head = self._of(2, "dense_parameters") / self._of(0, "dense_parameters")
        stages = stage_layout(layers, self.strategies, head if self.job.stack.balanced_stages else None)
        owned = self._owned(stages)
        gathers = self._zero3_s(self._of(0, "dense_parameters"), self._of(0, "expert_parameters"))
        ends = [
            sum(self._zero3_s(self._of(i, "dense_parameters"), np.zeros(1)), start=np.zeros(1))
            for i in (1, 2)
        ]
        update, moved = self._update_s(owned)
        reduce, renew, overlap = self._reduce_s(stages, owned)
        return Layouts(
            stages=stages,
            states=tuple(self._state(each) for each in owned),  # type: ignore[arg-type]
            gather_forward_s=gathers[0],
            gather_backward_s=gathers[1],
            scatter_s=gathers[2],
            gather_s=gathers[0] + gathers[1] + gathers[2],
            first_gather_s=ends[0],
            last_gather_s=ends[1],
            reduce_s=reduce,
            renew_s=renew,
            reduce_overlap=overlap,
            tied_s=self._tied_s(),
            edge=self._edge(owned[0]),
            update_s=update,
            update_moved_s=moved,
            sends=build_sends(self.links, self.ranks, self.strategies.pp),
            wait_s=self._wait_s(stages),
            accessed=self._accessed(owned) if self.job.cluster.expanded else None,
        )

    def _of(self, part: int, field: str) -> Array:
        return np.asarray(getattr(self.parts[part].costs, field)[self.shape])

    def _owned(self, stages: Stages) -> tuple[Parameters, Parameters, Parameters]:
        """Parameters of the first, second and last stage; tied weights count once where the ends are one."""
        dense, expert = self._of(0, "dense_parameters"), self._of(0, "expert_parameters")
        first, last = self._of(1, "dense_parameters"), self._of(2, "dense_parameters")
        tied = np.minimum(first, last) if self.job.graph.tied else np.zeros(1)
        alone = self.strategies.pp == 1
        return (
            Parameters(
                dense=stages.first * dense + first + np.where(alone, last - tied, 0.0),
                expert=stages.first * expert,
                ends=first + np.where(alone, last - tied, 0.0),
            ),
            Parameters(
                dense=np.where(alone, 0.0, stages.middle * dense),
                expert=stages.middle * expert * ~alone,
                ends=np.zeros(len(alone)),
            ),
            Parameters(
                dense=np.where(alone, 0.0, stages.last * dense + last),
                expert=stages.last * expert * ~alone,
                ends=np.where(alone, 0.0, last),
            ),
        )

    def _state(self, owned: Parameters) -> State:
        strategies, stack, widths = self.strategies, self.job.stack, self.widths
        shard, expert_shard = shard_ranks(strategies), expert_shard_ranks(strategies)
        layout = stack.capability.state
        unit = self._of(0, "dense_parameters") + self._of(0, "expert_parameters")
        gathered = layout.gathered_units * unit
        if layout.whole_ends:
            gathered = gathered + owned.ends

        def share(stage: int) -> Array:
            """Parameters kept when state is sharded from ZeRO `stage` on."""
            on = strategies.zero >= stage
            return owned.dense / np.where(on, shard, 1.0) + owned.expert / np.where(on, expert_shard, 1.0)

        whole = owned.dense + owned.expert
        stored = np.where(strategies.zero >= 1, widths.stored, widths.unsharded)
        more = widths.weight - stored  # at the ends
        every = stored * whole + more * owned.ends
        own = stored * share(3) + more * owned.ends / shard
        # ZeRO-3 holds its shard and what is gathered, never more than everything.
        weights = np.where(strategies.zero == 3, np.minimum(own + widths.weight * gathered, every), every)
        kept = whole if layout.whole_gradients else share(2)
        if layout.whole_with_pipeline:
            during = (strategies.pp > 1) & (strategies.zero >= 2)
            weights, kept = np.where(during, every, weights), np.where(during, whole, kept)
        several = strategies.dp * strategies.cp > 1
        unsharded = layout.unit_gradient_bytes * np.minimum(unit, whole)
        scattered = np.where((strategies.zero >= 2) & several, unsharded, 0.0)
        buckets = np.where((strategies.zero >= 1) & several, layout.bucket_bytes, 0.0)
        ends = owned.ends / np.where(strategies.zero >= 1, shard, 1.0)
        return State(
            weights=weights,
            gradients=widths.gradient * kept + scattered + buckets,
            optimizer=widths.optimizer * share(1) + (widths.end_optimizer - widths.optimizer) * ends,
        )

    def _edge(self, owned: Parameters) -> Array:
        first = (
            self._of(1, "dense_parameters")
            + self._of(0, "dense_parameters")
            + self._of(0, "expert_parameters")
        )
        return np.minimum(first / np.maximum(owned.dense + owned.expert, 1.0), 1.0)

    def _zero3_s(self, dense: Array, expert: Array) -> tuple[Array, Array, Array]:
        """Per microbatch: ZeRO-3 gathers weights forward and backward, ZeRO-2 and 3 scatter gradients."""
        strategies = self.strategies
        if not (strategies.zero >= 2).any():
            none = np.zeros(len(strategies))
            return none, none, none
        ranks, stride = shard_ranks(strategies), strategies.tp.astype(float)
        expert_ranks, expert_stride = (
            expert_shard_ranks(strategies),
            (strategies.ep * strategies.etp).astype(float),
        )
        weight_bytes, reduce_bytes = self.widths.weight, self.widths.reduced
        where, expert_where = (
            self.ranks.span(ranks, stride), self.ranks.span(expert_ranks, expert_stride)
        )  # fmt: skip

        def both(size: Array) -> Array:
            apart = all_gather_s(self.links, expert_where, size * expert) if expert.any() else 0.0
            return all_gather_s(self.links, where, size * dense) + apart

        gather = np.where(strategies.zero == 3, both(weight_bytes), 0.0)
        passes = self.job.graph.passes
        return passes * gather, gather, np.where(strategies.zero >= 2, both(reduce_bytes), 0.0)

    def _reduce_s(self, stages: Stages, owned: Sequence[Parameters]) -> tuple[Array, Array, Array]:
        """Of the stage that owns most: reduction of gradients, gather of new weights (ZeRO-1 and 2) per step;
        and the share of either that may hide.
        """
        strategies, stack = self.strategies, self.job.stack
        dense = np.maximum.reduce([each.dense for each in owned])
        expert = np.maximum.reduce([each.expert for each in owned])
        tp, apart = strategies.tp.astype(float), (strategies.ep * strategies.etp).astype(float)
        ranks = (strategies.dp * strategies.cp).astype(float)
        reduced, gathered = self._one_reduce_s(dense, ranks, tp)
        if expert.any():
            more = self._one_reduce_s(expert, np.maximum(ranks * tp / apart, 1.0), apart)
            reduced, gathered = reduced + more[0], gathered + more[1]
        sharded = (strategies.zero == 1) | (strategies.zero == 2)
        extra = np.where(sharded & (ranks > 1), stages.middle * stack.zero_layer_s, 0.0)
        reduced = reduced + np.where(strategies.zero == 1, extra, 0.0)
        gathered = gathered + np.where(strategies.zero == 2, extra, 0.0)
        alone = strategies.zero == 3
        reduced = np.where(alone, self._replica_reduce_s(dense, expert), reduced)
        overlap = np.where(sharded, stack.zero_overlap, stack.dp_overlap)
        return reduced, np.where(alone, 0.0, gathered), overlap

    def _one_reduce_s(self, parameters: Array, ranks: Array, stride: Array) -> tuple[Array, Array]:
        reduce_bytes = self.widths.reduced
        where, zero = self.ranks.span(ranks, stride), self.strategies.zero
        plain = all_reduce_s(self.links, where, reduce_bytes * parameters)
        updated = all_gather_s(self.links, where, self.widths.weight * parameters)
        scattered = all_gather_s(self.links, where, reduce_bytes * parameters)
        # ZeRO-2 has scattered its gradients in every microbatch.
        reduced = np.where(zero == 0, plain, np.where(zero == 1, scattered, 0.0))
        return reduced, np.where(zero == 0, 0.0, updated)

    def _replica_reduce_s(self, dense: Array, expert: Array) -> Array:
        """HSDP: each shard's gradients are summed over the replicas of the shard group."""
        strategies, reduce_bytes = self.strategies, self.widths.reduced
        ranks, apart = strategies.dp * strategies.cp, strategies.ep * strategies.etp
        total = np.zeros(len(strategies))
        for parameters, shard, every, stride in (
            (dense, shard_ranks(strategies), ranks, strategies.tp),
            (expert, expert_shard_ranks(strategies), ranks * strategies.tp / apart, apart),
        ):
            where = self.ranks.span(np.maximum(every / shard, 1.0), stride * shard)
            seconds = all_reduce_s(self.links, where, reduce_bytes * parameters / shard)
            total = total + np.where(parameters > 0, seconds, 0.0)
        return total

    def _tied_s(self) -> Array:
        """What tied weights add where the ends of a pipeline are at different sites.

        Inside a site it is left out, as it was when constants were fitted.
        """
        strategies = self.strategies
        leaves = build_sends(self.links, self.ranks, strategies.pp).leaves
        if not (self.job.graph.tied and leaves.any()):
            return np.zeros(len(strategies))
        tied = Tied(
            parameters=np.minimum(self._of(1, "dense_parameters"), self._of(2, "dense_parameters")),
            gradient_bytes=self.widths.reduced,
            weight_bytes=self.widths.weight,
        )
        added = tied_s(self.links, self.ranks, strategies, shard_ranks(strategies), tied)
        return np.where(leaves, added, 0.0)

    def _sharded(self, dense: Array, expert: Array, stage: int) -> Array:
        """Parameters that a device keeps of some if state is sharded from ZeRO `stage` on."""
        on = self.strategies.zero >= stage
        return dense / np.where(on, shard_ranks(self.strategies), 1.0) + expert / np.where(
            on, expert_shard_ranks(self.strategies), 1.0
        )

    def _accessed(self, owned: Sequence[Parameters]) -> Accessed:
        widths = self.widths
        read = [(self._of(part, "read_dense"), self._of(part, "read_expert")) for part in range(3)]
        stored = (widths.stored, widths.weight, widths.weight)
        kept = self._updated(owned)
        return Accessed(
            weights=tuple(  # type: ignore[arg-type]
                width * self._sharded(*each, 3) for width, each in zip(stored, read, strict=True)
            ),
            gradients=tuple(widths.gradient * self._sharded(*each, 2) for each in read),  # type: ignore[arg-type]
            update={
                "optimizer": 2.0 * (widths.optimizer * kept + self._end_bytes(owned)),
                "gradients": 2.0 * widths.gradient * kept,
                "weights": widths.weight * kept,
            },
        )

    def _end_bytes(self, owned: Sequence[Parameters]) -> Array:
        """What the ends of the stage that owns most have of optimizer state beyond as many of a layer."""
        more = self.widths.end_optimizer - self.widths.optimizer
        most = np.argmax([each.dense for each in owned], axis=0)
        ends = np.choose(most, [each.ends for each in owned])
        return more * self._sharded(ends, np.zeros(1), 1)

    def _updated(self, owned: Sequence[Parameters]) -> Array:
        """Parameters that a device updates, of the stage that owns most."""
        dense = np.maximum.reduce([each.dense for each in owned])
        return self._sharded(dense, np.maximum.reduce([each.expert for each in owned]), 1)

    def _update_s(self, owned: Sequence[Parameters]) -> tuple[Array, Array]:
        """The update's traffic: states and gradient read and written; and what moves if it is offloaded."""
        job = self.job
        kept, widths = self._updated(owned), self.widths
        traffic = 2.0 * widths.optimizer + 2.0 * widths.gradient + widths.weight
        touched = kept * traffic + 2.0 * self._end_bytes(owned)
        local = update_s(job.cluster.device, job.efficiency, touched)
        rate = job.cluster.network.host_bytes_per_s * job.efficiency.host_link
        # The host updates what it holds at the speed of its own memory.
        there = kept * widths.host_traffic / host_update_bytes_per_s(job.cluster, job.efficiency)
        return local, np.maximum(there - local, 0.0) + kept * (widths.gradient + widths.weight) / rate

    def _wait_s(self, stages: Stages) -> Array:
        """What some stacks lose per microbatch of a pipeline: pipeline_tp_s and pipeline_stall_s."""
        strategies, stack = self.strategies, self.job.stack
        nodes = strategies.dp * strategies.tp * strategies.cp * strategies.pp / self.job.cluster.node_size
        contention = stack.pipeline_tp_s * stages.middle * np.where(strategies.tp > 1, strategies.tp, 0)
        stall = stack.pipeline_stall_s * np.minimum(nodes / 64.0, 1.0) ** 8  # seen on up to 64 nodes
        return np.where(strategies.pp > 1, contention + stall, 0.0)
