"""Parameters of pipeline rows, their bytes by precision, and the communication of data parallelism."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalar_reference.blocks import BlockWork, ModelWork
from scalar_reference.collectives import Group, Placement
from scalar_reference.rows import Row
from trainwright.cost.state import HOST_UPDATE_BYTES_PER_S
from trainwright.estimate.types import Job
from trainwright.plan.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Per parameter."""

    weight: float  # as computed with and sent
    stored: float  # of a layer, with all copies of it
    gradient: float  # as accumulated
    reduced: float  # on the wire
    optimizer: float
    end_optimizer: float  # of embedding and head
    host_traffic: float  # of an update on the host


def state_bytes(job: Job, strategy: Strategy) -> StateBytes:
    """By precision: fp32 weights are their own main copy, fp16 runs keep gradients in fp16 unless stated.

    Without ZeRO, 16-bit weights of layers are kept next to their fp8 or fp4 copies. A host computes in fp32:
    main weights, every moment and gradients have 4 bytes there at least.
    """
    stack, precision = job.stack, strategy.precision
    whole = precision == "fp32"
    weight = 4.0 if whole else 2.0
    low = stack.capability.weight_bytes.get(precision, {}).get(job.cluster.device.family)
    stored = weight if low is None else low if strategy.zero else weight + low
    most = stack.fp16_gradient_bytes if precision == "fp16" and not stack.grad_dtype else 1e9
    gradient = min(stack.gradient_bytes, most)
    chosen = stack.optimizer
    if chosen is None:  # Adam's moments, and main weights
        layers = ends = min(stack.optimizer_bytes, 8.0) if whole else stack.optimizer_bytes
        on_host = stack.optimizer_bytes
    else:
        main = 0.0 if whole else stack.optimizer_bytes - 8.0
        if chosen.keeps_remainders and precision == "bf16":  # the 16 bits that a bf16 weight lacks
            main = min(main, 2.0)
        layers = main + chosen.moment_bytes
        ends = layers if chosen.end_moment_bytes is None else main + chosen.end_moment_bytes
        on_host = max(layers, 4.0 * (1 + chosen.moments))
    return StateBytes(
        weight=weight,
        stored=stored,
        gradient=gradient,
        reduced=min(stack.reduce_bytes, most),
        optimizer=layers,
        end_optimizer=ends,
        host_traffic=2.0 * on_host + 2.0 * max(gradient, 4.0) + weight,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Of one device, before ZeRO shards them."""

    dense: float
    expert: float = 0.0
    ends: float = 0.0  # of the dense ones: embedding and head

    @property
    def both(self) -> float:
        """Together."""
        return self.dense + self.expert


def row_parameters(job: Job, work: ModelWork, row: Row) -> Parameters:
    """Of one pipeline row; tied embeddings count once where a row has both ends."""
    ends = (work.first.dense_parameters * row.is_first, work.last.dense_parameters * row.is_last)
    tied = min(ends) if job.graph.tied else 0.0
    return Parameters(
        dense=row.layers * work.layer.dense_parameters + sum(ends) - tied,
        expert=row.layers * work.layer.expert_parameters,
        ends=sum(ends) - tied,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardGroups:
    """Ranks that share ZeRO's shards, and ranks that hold copies: of dense parameters and of experts."""

    shard: float
    replicas: float
    expert_shard: float
    expert_replicas: float


def shard_groups(strategy: Strategy) -> ShardGroups:
    """HSDP shards over `shard` ranks; of these, some hold the same experts."""
    s = strategy
    ranks, apart = s.dp * s.cp, s.ep * s.etp
    shard = min(s.shard, ranks) if s.shard else ranks
    expert_shard = max(shard * s.tp / apart, 1.0)
    return ShardGroups(
        shard=shard,
        replicas=max(ranks / shard, 1.0),
        expert_shard=expert_shard,
        expert_replicas=max(ranks * s.tp / apart / expert_shard, 1.0),
    )


def sharded(strategy: Strategy, owned: Parameters, zero: int) -> float:
    """Parameters that a device keeps if they are sharded from this ZeRO stage on."""
    if strategy.zero < zero:
        return owned.both
    groups = shard_groups(strategy)
    return owned.dense / groups.shard + owned.expert / groups.expert_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathers:
    """ZeRO's communication for one layer or end, per microbatch."""

    forward_s: float
    backward_s: float
    scatter_s: float

    @property
    def total_s(self) -> float:
        """All three."""
        return self.forward_s + self.backward_s + self.scatter_s


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel:
    """The communication of data parallelism, hidden or not."""

    job: Job
    strategy: Strategy
    placement: Placement

    @property
    def dense_group(self) -> Group:
        """All ranks with the same dense parameters."""
        s = self.strategy
        return self.placement.group(s.dp * s.cp, s.tp)

    @property
    def expert_group(self) -> Group:
        """All ranks with the same experts."""
        s = self.strategy
        return self.placement.group(max(s.dp * s.cp * s.tp / (s.ep * s.etp), 1.0), s.ep * s.etp)

    def gathers(self, work: BlockWork, *, is_end: bool) -> Gathers:
        """ZeRO-3 gathers weights before every forward and the backward; ZeRO-2 and 3 scatter gradients."""
        s, groups, width = self.strategy, shard_groups(self.strategy), state_bytes(self.job, self.strategy)
        dense = self.placement.group(groups.shard, s.tp)
        experts = self.placement.group(groups.expert_shard, s.ep * s.etp)

        def ring_s(element_bytes: float) -> float:
            time_s = dense.all_gather_s(element_bytes * work.dense_parameters)
            if work.expert_parameters and not is_end:
                time_s += experts.all_gather_s(element_bytes * work.expert_parameters)
            return time_s

        gather_s = ring_s(width.weight) if s.zero == 3 else 0.0
        return Gathers(
            forward_s=self.job.graph.passes * gather_s,
            backward_s=gather_s,
            scatter_s=ring_s(width.reduced) if s.zero >= 2 else 0.0,
        )

    def reduce_s(self, most: Parameters, layers: float) -> float:
        """Gradients, once per step: all-reduced, scattered (ZeRO-1), or summed over replicas (ZeRO-3)."""
        s, width = self.strategy, state_bytes(self.job, self.strategy).reduced
        if s.zero == 2:  # scattered in every microbatch
            return 0.0
        if s.zero == 3:
            return self._replica_reduce_s(most, width)
        total_s = self._calls_s(layers) if s.zero == 1 else 0.0
        for group, owned in self._owners(most):
            size = width * owned
            total_s += group.all_reduce_s(size) if s.zero == 0 else group.all_gather_s(size)
        return total_s

    def renew_s(self, most: Parameters, layers: float) -> float:
        """New weights, once per step: gathered under ZeRO-1 and 2."""
        s, width = self.strategy, state_bytes(self.job, self.strategy).weight
        if s.zero not in (1, 2):
            return 0.0
        calls_s = self._calls_s(layers) if s.zero == 2 else 0.0
        return calls_s + sum(group.all_gather_s(width * owned) for group, owned in self._owners(most))

    def _owners(self, most: Parameters) -> list[tuple[Group, float]]:
        owners = [(self.dense_group, most.dense)]
        return [*owners, (self.expert_group, most.expert)] if most.expert else owners

    def _calls_s(self, layers: float) -> float:
        """Of stacks that start a collective for every layer."""
        return layers * self.job.stack.zero_layer_s if self.strategy.dp * self.strategy.cp > 1 else 0.0

    def _replica_reduce_s(self, most: Parameters, width: float) -> float:
        s, groups = self.strategy, shard_groups(self.strategy)
        dense = self.placement.group(groups.replicas, s.tp * groups.shard)
        total_s = dense.all_reduce_s(width * most.dense / groups.shard)
        if most.expert:
            apart = s.ep * s.etp * groups.expert_shard
            experts = self.placement.group(groups.expert_replicas, apart)
            total_s += experts.all_reduce_s(width * most.expert / groups.expert_shard)
        return total_s


def most_parameters(job: Job, work: ModelWork, rows: Sequence[Row]) -> Parameters:
    """The most that any row has, of dense ones and of experts."""
    owned = [row_parameters(job, work, row) for row in rows]
    most = max(owned, key=lambda each: each.dense)
    return Parameters(dense=most.dense, expert=max(each.expert for each in owned), ends=most.ends)


def update_s(job: Job, strategy: Strategy, most: Parameters) -> float:
    """The optimizer: state and gradients are read and written, weights written; on the host if offloaded."""
    width, cluster = state_bytes(job, strategy), job.cluster
    updated = sharded(strategy, most, 1)
    more_on_ends = (width.end_optimizer - width.optimizer) * sharded(strategy, Parameters(dense=most.ends), 1)
    traffic = updated * (2.0 * width.optimizer + 2.0 * width.gradient + width.weight) + 2.0 * more_on_ends
    local_s = traffic / (cluster.device.memory[0].bytes_per_s * job.efficiency.memory)
    if strategy.offload not in ("optimizer", "both"):
        return local_s
    link_bytes_per_s = cluster.network.host_bytes_per_s * job.efficiency.host_link
    copied_s = updated * (width.gradient + width.weight) / link_bytes_per_s
    host_s = updated * width.host_traffic / host_update_bytes_per_s(job, link_bytes_per_s)
    return max(host_s, local_s) + copied_s


def host_update_bytes_per_s(job: Job, link_bytes_per_s: float) -> float:
    """Of a host's memory for one device: as stated, or what hosts have at most, if that is not slower."""
    tier = job.cluster.host_tier
    if tier is None:
        return min(link_bytes_per_s, HOST_UPDATE_BYTES_PER_S)
    return tier.update_bytes_per_s or min(tier.bytes_per_s, HOST_UPDATE_BYTES_PER_S)
