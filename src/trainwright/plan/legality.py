"""Whether a stack can run a strategy: every rule once, over arrays, for search, export and readers alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trainwright.model.graph import Graph, is_layer
from trainwright.plan.mapping import AXES, ORDERS, canonical_order
from trainwright.plan.recompute_modules import recompute_modules
from trainwright.plan.recompute_policies import megatron_norm
from trainwright.plan.strategy import (
    ACTIVATION_OFFLOADS,
    CP_KINDS,
    OFFLOADS,
    PRECISIONS,
    RECOMPUTES,
    SCHEDULES,
    Strategies,
    Strategy,
)
from trainwright.stack.capability import MICROBATCH_RULES, Capability

Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """What legality depends on besides the strategy; 0 or False: unknown or none."""

    layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    seq: int = 0
    global_batch: int | Ints = 0  # one for all strategies, or one each
    tied: bool = False
    windowed: bool = False
    sinks: bool = False
    latent: bool = False
    device_family: str = ""
    optimizer: str = ""  # as stated; "": the stack's own
    grad_dtype: str = ""


def plan_facts(
    graph: Graph, *, seq: int, global_batch: int | Ints, device_family: str = "", optimizer: str = "",
    grad_dtype: str = "",
) -> PlanFacts:  # fmt: skip
    """The facts of a model at one sequence length and batch, and of what was stated of its optimizer."""
    ops = [op for segment in graph.segments for op in segment.block.ops if op.kind == "attention"]
    return PlanFacts(
        layers=sum(each.count for each in graph.segments if is_layer(each.block)),
        heads=graph.sizes.get("heads", 0),
        kv_heads=graph.sizes.get("kv_heads", 0),
        experts=graph.sizes.get("experts", 0),
        seq=seq,
        global_batch=global_batch,
        tied=bool(graph.tied),
        windowed=any(op.window for op in ops),
        sinks=any(weight.name.endswith("sinks") for op in ops for weight in op.weights),
        latent="kv_rank" in graph.sizes,
        device_family=device_family,
        optimizer=optimizer,
        grad_dtype=grad_dtype,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that some of several strategies break."""

    knob: str
    broken: Flags
    reason: Callable[[Strategy], str]


def illegal(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Flags:
    """Which strategies the stack cannot run."""
    return _broken(len(strategies), violations(capability, strategies, facts))


@cache
def _is_placed(order: str, wide: int, orders: tuple[str, ...]) -> bool:
    """Whether an order places ranks as one of some orders does, where the axes of the bits in `wide` have
    several; the usual order must be one of them.
    """
    if order == ORDERS[0]:
        return order in orders
    sizes = {axis: 1 + (wide >> bit & 1) for bit, axis in enumerate(AXES)}
    placed = {canonical_order(each, sizes) for each in orders} | {ORDERS[0]}
    return canonical_order(order, sizes) in placed


def discouraged(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Flags:
    """Which strategies the stack runs but advises against: Megatron-FSDP with tp or cp before Blackwell."""
    if facts.device_family not in capability.fsdp_alone:
        return np.zeros(len(strategies), dtype=bool)
    split = (strategies.tp > 1) | (strategies.cp > 1)
    return np.asarray((strategies.zero >= 2) & split & (strategies.dp * strategies.cp > 1))


def illegal_schedule(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Flags:
    """Which strategies break a rule on pipelines or precision: none reads experts, sharding or the ladder of
    recomputation and offloading.
    """
    rules = _Rules(capability=capability, strategies=strategies, facts=facts)
    return _broken(len(strategies), rules.axes(), rules.pipeline(), rules.precision())


def illegal_zero(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Flags:
    """Which strategies break a rule on ZeRO, or are discouraged; what does so with ep 1 does with any ep."""
    rules = _Rules(capability=capability, strategies=strategies, facts=facts)
    return _broken(len(strategies), rules.sharding()) | discouraged(capability, strategies, facts)


def illegal_sharding(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Flags:
    """Which strategies break a rule on other axes or sharding, or are discouraged: none reads schedules,
    micro batches or the ladder of recomputation and offloading.
    """
    rules = _Rules(capability=capability, strategies=strategies, facts=facts)
    topics = (rules.axes(), rules.tensor(), rules.context(), rules.experts(), rules.sharding())
    return _broken(len(strategies), *topics) | discouraged(capability, strategies, facts)


def _broken(count: int, *topics: Iterator[Violation]) -> Flags:
    found = np.zeros(count, dtype=bool)
    for topic in topics:
        for each in topic:
            found |= each.broken
    return found


def violations(capability: Capability, strategies: Strategies, facts: PlanFacts) -> Iterator[Violation]:
    """The rules of a stack, each with the strategies that break it."""
    rules = _Rules(capability=capability, strategies=strategies, facts=facts)
    yield from rules.axes()
    yield from rules.order()
    yield from rules.tensor()
    yield from rules.context()
    yield from rules.experts()
    yield from rules.pipeline()
    yield from rules.sharding()
    yield from rules.memory()
    yield from rules.precision()
    yield from rules.optimizer()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """The rules by topic. A knob that the strategy's other knobs leave without a meaning breaks none."""

    capability: Capability
    strategies: Strategies
    facts: PlanFacts

    @property
    def _sharded(self) -> Flags:
        """Which shard anything: ZeRO over several ranks."""
        s = self.strategies
        alone = (s.dp * s.cp == 1) | (s.shard == 1)
        return np.asarray((s.zero > 0) & ~alone)

    def _say(self, knob: str, broken: Flags, reason: str) -> Iterator[Violation]:
        if broken.any():
            title = self.capability.title
            yield Violation(knob=knob, broken=np.asarray(broken), reason=lambda _: f"{title} {reason}")

    def _listed(
        self, knob: str, known: Sequence[str], value: Ints, names: Sequence[str], asked: Flags
    ) -> Iterator[Violation]:
        allowed = np.array([name in known for name in names])
        has = ", ".join(known) or "none"
        yield from self._say(knob, asked & ~allowed[value], f"has {has}")

    def axes(self) -> Iterator[Violation]:
        """Axes that the stack does not have."""
        for axis in ("tp", "cp", "pp", "vpp", "ep", "etp"):
            if axis not in self.capability.axes:
                yield from self._say(axis, getattr(self.strategies, axis) > 1, "has no setting for it")

    def order(self) -> Iterator[Violation]:
        """Orders of ranks on the network."""
        s, orders = self.strategies, self.capability.orders
        if orders and s.order.any():
            has = f"has {', '.join(orders)}"
            yield from self._say("order", ~self._in_orders(orders), has)
            inner = self.capability.fsdp_orders
            if inner:
                broken = self._sharded & (s.zero >= 2) & ~self._in_orders(inner)
                yield from self._say("order", broken, f"has {', '.join(inner)} with zero 2 and 3")
        for order in self.capability.equal_expert_replicas if s.order.any() else ():
            usual = self._in_orders((ORDERS[0],))
            ranks = np.where(s.ep * s.etp == 1, s.tp, s.ep * s.etp)  # etp is tp unless experts state it
            unequal = (s.pp > 1) & (ranks != s.tp * s.cp)
            broken = self._in_orders((order,)) & ~usual & unequal
            yield from self._say("order", broken, f"has {order} only where ep·etp = tp·cp")

    def _in_orders(self, orders: Sequence[str]) -> Flags:
        """Which strategies place ranks as one of some orders does."""
        s = self.strategies
        wide = sum((getattr(s, axis) > 1) << bit for bit, axis in enumerate(AXES))
        code = np.asarray(s.order + len(ORDERS) * wide)
        table = np.zeros(len(ORDERS) << len(AXES), dtype=bool)
        for each in np.flatnonzero(np.bincount(code)).tolist():
            many, order = divmod(each, len(ORDERS))
            table[each] = _is_placed(ORDERS[order], many, tuple(orders))
        return np.asarray(table[code])

    def tensor(self) -> Iterator[Violation]:
        """Sequence parallelism, and heads that tensor parallelism divides."""
        s, able = self.strategies, self.capability
        if able.sequence_parallel == "never":
            yield from self._say("sp", (s.sp > 0) & (s.tp > 1), "has no sequence parallelism")
        if able.sequence_parallel == "always":
            yield from self._say("sp", (s.sp == 0) & (s.tp > 1), "has sequence parallelism with tp")
        heads, kv_heads = self.facts.heads, self.facts.kv_heads
        if heads:
            yield from self._say("tp", heads % s.tp != 0, f"needs a divisor of {heads} attention heads")
        if kv_heads:
            divides = kv_heads % s.tp == 0
            if able.kv_heads == "replicate":
                divides |= s.tp % kv_heads == 0
            yield from self._say("tp", ~divides, f"cannot split {kv_heads} key-value heads so")

    def context(self) -> Iterator[Violation]:
        """Kinds of context parallelism."""
        s, able, on = self.strategies, self.capability, self.strategies.cp > 1
        if not on.any() or "cp" not in able.axes:
            return
        yield from self._listed("cp_kind", able.cp_kinds, s.cp_kind, CP_KINDS, on)
        for present, kinds, what in (
            (self.facts.windowed, able.window_cp_kinds, "sliding windows"),
            (self.facts.sinks, able.sink_cp_kinds, "attention sinks"),
        ):
            if present:
                allowed = np.array([name in kinds for name in CP_KINDS])
                has = ", ".join(kinds) or "no context parallelism"
                yield from self._say("cp_kind", on & ~allowed[s.cp_kind], f"has {has} with {what}")
        ulysses = on & (s.cp_kind == CP_KINDS.index("ulysses"))
        if self.facts.kv_heads and ulysses.any():
            whole = (self.facts.heads % (s.tp * s.cp) == 0) & (self.facts.kv_heads % (s.tp * s.cp) == 0)
            yield from self._say("cp", ulysses & ~whole, "exchanges heads that divide by tp·cp")
        if self.facts.seq:
            whole = self.facts.seq % (2 * s.cp) == 0
            yield from self._say("cp", on & ~whole, f"needs 2·cp to divide {self.facts.seq} tokens")
            if able.square_ring:
                ring = on & (s.cp_kind == CP_KINDS.index("ring"))
                square = (self.facts.seq % (s.cp * s.cp) == 0) & (s.cp % 2 == 0)
                yield from self._say("cp", ring & ~square, "rings need an even cp whose square divides seq")
        if able.cp_shards:
            yield from self._say("zero", on & (s.zero < 2), "shards weights over context-parallel ranks")

    def experts(self) -> Iterator[Violation]:
        """Expert parallelism."""
        s, able, on = self.strategies, self.capability, self.strategies.ep > 1
        if "ep" not in able.axes:
            return
        left = (s.dp * s.cp * s.tp) % (s.ep * s.etp) != 0
        yield from self._say("ep", (s.ep * s.etp > 1) & left, "spreads ep·etp over the ranks of a stage")
        if not on.any():
            return
        if self.facts.experts:
            divides = self.facts.experts % s.ep == 0
            yield from self._say("ep", on & ~divides, f"needs a divisor of {self.facts.experts} experts")
        if able.expert_ranks == "dp":
            yield from self._say("ep", on & (s.dp % s.ep != 0), "spreads experts over data-parallel ranks")
        if able.ep_shards:
            groups = np.where(s.shard > 0, s.shard, s.dp * s.cp) // s.cp
            broken = on & ((s.zero < 2) | (groups % s.ep != 0))
            yield from self._say("zero", broken, "shards weights over whole groups of expert-parallel ranks")
        if able.etp_is_tp:
            yield from self._say("etp", (s.etp > 1) & (s.etp != s.tp), "has etp 1 or tp")
        allowed = np.isin(s.zero, able.expert_zeros)
        has = ", ".join(map(str, able.expert_zeros))
        yield from self._say("zero", on & self._sharded & ~allowed, f"has stages {has} with ep")

    def pipeline(self) -> Iterator[Violation]:
        """Schedules, their microbatches, and layers of stages."""
        s, able, on = self.strategies, self.capability, self.strategies.pp > 1
        if not on.any() or "pp" not in able.axes:
            return
        yield from self._listed("schedule", able.schedules, s.schedule, SCHEDULES, on)
        yield from self._say("vpp", s.vpp > able.most_vpp, f"has at most {able.most_vpp} chunks a stage")
        if able.target:
            chunked_gpipe = on & (s.vpp > 1) & (s.schedule == SCHEDULES.index("gpipe"))
            yield from self._say("schedule", chunked_gpipe, "has gpipe with one chunk a stage")
        if np.any(self.facts.global_batch):
            yield from self._microbatches(on)
        if self.facts.layers:
            chunks, layers = s.pp * s.vpp, self.facts.layers
            if able.layer_split == "even":
                rule = f"needs pp·vpp to divide {layers} layers"
                yield from self._say("pp", on & (layers % chunks != 0), rule)
            rule = f"cannot cut {layers} layers, embedding and head into more chunks than they are"
            yield from self._say("pp", on & (chunks > layers + 2), rule)
        if self.facts.tied and not able.tied_pipeline:
            yield from self._say("pp", on, "cannot split a model with tied embeddings into stages")

    def _microbatches(self, on: Flags) -> Iterator[Violation]:
        s = self.strategies
        count = self.facts.global_batch // np.maximum(s.dp * s.micro_batch, 1)
        for index, name in enumerate(SCHEDULES):
            rule = self.capability.microbatches.get(name, "any")
            own = on & (s.schedule == index)
            rounds = np.maximum(count // s.pp, 1)
            broken = {
                "any": np.zeros(len(s), dtype=bool),
                "stages": count < s.pp * s.vpp,
                "multiple": count % s.pp != 0,
                "rounds": count % rounds != 0,
            }[rule]
            yield from self._say("micro_batch", own & broken, f"{name}: {MICROBATCH_RULES[rule]}")

    def sharding(self) -> Iterator[Violation]:
        """ZeRO stages, alone and with other axes, and groups that share the shards."""
        s, able, on = self.strategies, self.capability, self._sharded
        stage = np.where(on, s.zero, 0)
        has = ", ".join(map(str, able.zeros))
        several = s.dp * s.cp > 1
        yield from self._say("zero", several & ~np.isin(stage, able.zeros), f"has stages {has}")
        if "pp" in able.axes:
            has = ", ".join(map(str, able.pipeline_zeros))
            broken = on & (s.pp > 1) & ~np.isin(stage, able.pipeline_zeros)
            yield from self._say("zero", broken, f"has stages {has} with pp")
        if able.replicated_alone:
            others = (s.tp > 1) | (s.cp > 1) | (s.pp > 1) | (s.ep > 1)
            yield from self._say("zero", several & (stage == 0) & others, "replicates with no other axis")
        hybrid = on & (s.shard > 0) & (s.shard < s.dp * s.cp)
        broken = hybrid & ~np.isin(stage, able.hybrid_zeros)
        yield from self._say("shard", broken, "shards this stage over all data-parallel ranks")
        if able.hybrid_whole_cp:
            yield from self._say("shard", hybrid & (s.shard % s.cp != 0), "shards over whole groups of cp")

    def memory(self) -> Iterator[Violation]:
        """Recomputation and offloading."""
        s, able = self.strategies, self.capability
        every = np.ones(len(s), dtype=bool)
        yield from self._recomputations()
        some = s.recompute_layers > 0
        if able.recompute_layers == "every":
            yield from self._say("recompute_layers", some, "recomputes every layer or none")
        if able.recompute_layers == "chunk":
            broken = some & (s.recompute_layers % s.vpp != 0)
            yield from self._say("recompute_layers", broken, "counts them in each chunk of a stage")
        full = s.recompute == RECOMPUTES.index("full")
        stage = np.where(self._sharded, s.zero, 0)
        broken = full & ~np.isin(stage, able.recompute_zeros)
        has = ", ".join(map(str, able.recompute_zeros))
        yield from self._say("recompute", broken, f"recomputes with zero {has}")
        yield from self._listed("offload", able.offloads, s.offload, OFFLOADS, every)
        yield from self._offloads()

    def _recomputations(self) -> Iterator[Violation]:
        """Sets of modules that the stack has no word for, each distinct set judged once."""
        s, able = self.strategies, self.capability
        if not able.recomputes:
            return
        for code in np.unique(s.recompute).tolist():
            name = RECOMPUTES[code]
            modules = recompute_modules(name)
            if name in able.recomputes:
                continue
            lacking = [each for each in modules if each not in able.recompute_modules]
            has = ", ".join(able.recomputes)
            if able.recompute_modules:
                has += f", or any of {', '.join(able.recompute_modules)}"
            if lacking or not able.recompute_modules:
                yield from self._say("recompute", s.recompute == code, f"has {has}")
            elif able.fused_norms and self.facts.layers:
                apart = megatron_norm(latent=self.facts.latent, experts=bool(self.facts.experts))
                fused = [each for each in modules if each in ("norm", "mlp_norm") and each != apart]
                rest = f"recomputes {apart} here" if apart else "fuses all norms into linears here"
                if fused:
                    yield from self._say("recompute", s.recompute == code, rest)

    def _offloads(self) -> Iterator[Violation]:
        s, able = self.strategies, self.capability
        optimizer = np.array([name in ("optimizer", "both") for name in OFFLOADS])[s.offload]
        activations = np.array([name in ACTIVATION_OFFLOADS for name in OFFLOADS])[s.offload]
        alone = s.dp * s.cp == 1  # one rank holds all shards
        stage = np.where(self._sharded | alone, s.zero, 0)
        broken = optimizer & ~np.isin(np.where(alone, 1, stage), able.optimizer_offload_zeros)
        has = ", ".join(map(str, able.optimizer_offload_zeros))
        yield from self._say("offload", broken, f"offloads the optimizer with zero {has}")
        if able.offload_fp8_keeps:
            kept = RECOMPUTES.index("+".join(able.offload_fp8_keeps))  # as bits
            on = optimizer & self._sharded & (s.precision == PRECISIONS.index("fp8"))
            has = ", ".join(able.offload_fp8_keeps)
            rule = f"recomputes none of {has} with fp8 and an offloaded optimizer"
            yield from self._say("recompute", on & (s.recompute & kept > 0), rule)
        if not able.activation_offload_pipeline:
            yield from self._say("offload", activations & (s.pp > 1), "offloads activations without pp")
        if able.activation_offload_recomputes:
            codes = [RECOMPUTES.index(name) for name in able.activation_offload_recomputes]
            has = ", ".join(able.activation_offload_recomputes)
            broken = activations & ~np.isin(s.recompute, codes)
            yield from self._say("offload", broken, f"offloads activations with recomputation {has}")
        yield from self._offloaded_layers(activations)

    def _offloaded_layers(self, activations: Flags) -> Iterator[Violation]:
        """Numbers of layers, where activations can be offloaded at all."""
        s, able, layers = self.strategies, self.capability, self.facts.layers
        some = activations & (s.offload_layers > 0)
        if not some.any() or not {*ACTIVATION_OFFLOADS} & {*able.offloads}:
            return
        if not able.counts_offloaded_layers:
            yield from self._say("offload_layers", some, "offloads activations of every layer or none")
        elif layers:
            most = -(-layers // s.pp)
            rule = f"offloads fewer than the {layers} layers there are, or all without a number"
            yield from self._say("offload_layers", some & (s.offload_layers >= most), rule)

    def precision(self) -> Iterator[Violation]:
        """Number formats, and communication that is not overlapped."""
        s, able = self.strategies, self.capability
        every = np.ones(len(s), dtype=bool)
        yield from self._listed("precision", able.precisions, s.precision, PRECISIONS, every)
        has = ", ".join("on" if each else "off" for each in able.overlaps)
        yield from self._say("overlap", ~np.isin(s.overlap > 0, able.overlaps), f"has overlap {has}")
        few = (s.pp > 1) & (s.pp <= able.overlapped_pp) & (s.vpp > 1)
        rule = f"interleaves {able.overlapped_pp} stages with overlapped sends only"
        yield from self._say("overlap", few & (s.overlap == 0), rule)
        if able.unaccumulated_precisions and np.any(self.facts.global_batch):
            count = self.facts.global_batch // np.maximum(s.dp * s.micro_batch, 1)
            named = np.array([name in able.unaccumulated_precisions for name in PRECISIONS])
            broken = named[s.precision] & (s.pp == 1) & (count > 1)
            yield from self._say("precision", broken, "has no gradient accumulation with it")

    def optimizer(self) -> Iterator[Violation]:
        """The optimizer that is stated, with ZeRO, offloading and precision; and the dtype of gradients."""
        s, able, name = self.strategies, self.capability, self.facts.optimizer
        every = np.ones(len(s), dtype=bool)
        if name:
            has = ", ".join(able.optimizers)
            yield from self._say("optimizer", every & (name not in able.optimizers), f"has {has}")
            stage = np.where(self._sharded, s.zero, 0)
            if name in able.sharded_optimizers:
                alone = (s.dp * s.cp == 1) & (s.zero >= 1)
                yield from self._say("zero", (stage == 0) & ~alone, f"has {name} with zero 1 and above")
            if name not in able.fsdp_optimizers:
                has = ", ".join(able.fsdp_optimizers)
                yield from self._say("zero", stage >= 2, f"has {has} with zero 2 and 3, not {name}")
            if name not in able.offload_optimizers:
                on_host = np.array([each in ("optimizer", "both") for each in OFFLOADS])[s.offload]
                has = ", ".join(able.offload_optimizers) or "none"
                yield from self._say("offload", on_host, f"updates on the host with {has}, not {name}")
        if dtype := self.facts.grad_dtype:
            has = ", ".join(able.grad_dtypes)
            yield from self._say("grad_dtype", every & (dtype not in able.grad_dtypes), f"has {has}")
            wide = np.array([each in ("fp32", "fp16") for each in PRECISIONS])[s.precision]
            rule = "has gradients in bf16 where products are in bf16, fp8 or fp4"
            yield from self._say("grad_dtype", wide & (dtype == "bf16"), rule)
