"""What of a plan a stack cannot run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from trainwright.errors import BadInput
from trainwright.export.canonical import canonical
from trainwright.export.handover import Handover
from trainwright.model.features import model_features
from trainwright.plan.legality import PlanFacts, violations
from trainwright.plan.recompute_modules import recompute_modules
from trainwright.plan.strategy import ACTIVATION_OFFLOADS, EVERY_LAYER, Strategy, stack_strategies
from trainwright.stack.capability import ANY, Capability, missing_features
from trainwright.stack.load import stack_entries

_DEFAULTS = {field.name: field.default for field in fields(Strategy)}
# Knobs that have no meaning without another one.
_FOLLOW = {
    "pp": ("vpp", "schedule"), "cp": ("cp_kind",), "tp": ("sp",), "recompute": ("recompute_layers",),
    "offload": ("offload_layers",),
}  # fmt: skip
_STATED = ("optimizer", "grad_dtype")  # of a handover, besides its strategy
_SAID = {"micro_batch": "mb", "shard": "hsdp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A knob that a stack cannot run, and why."""

    knob: str
    value: object
    reason: str

    def __str__(self) -> str:
        return f"{said(self.knob)} {self.value}: {self.reason}"


def said(knob: str) -> str:
    """A knob as strategies in text name it."""
    return _SAID.get(knob, knob)


def capability_gaps(handover: Handover, capability: Capability) -> Iterator[Gap]:
    """The knobs of a plan that a stack cannot run, and what of its model it has no setting for."""
    plain, arch = canonical(handover.strategy), handover.architecture
    for each in violations(capability, stack_strategies([plain]), _facts(handover)):
        value = getattr(handover if each.knob in _STATED else plain, each.knob)
        yield Gap(knob=each.knob, value=written(value), reason=each.reason(plain))
    if arch is None:
        yield from _unlisted(plain, capability)
        return
    for what, reason in missing_features(capability, arch.name, arch.kind, model_features(arch)):
        yield Gap(knob=f"model {what}", value=arch.name, reason=reason)


def _unlisted(strategy: Strategy, capability: Capability) -> Iterator[Gap]:
    """What can be stated only with the layers of a model; labels of norms mean others in each model."""
    reason = "needs the layers of the model: state --model"
    every = strategy.offload in ACTIVATION_OFFLOADS and strategy.offload_layers == EVERY_LAYER
    if capability.counts_offloaded_layers and every:
        yield Gap(knob="offload", value=strategy.offload, reason=reason)
    usual = (1, capability.unlisted_vpp)
    if capability.unlisted_vpp and strategy.schedule == "interleaved" and strategy.vpp not in usual:
        yield Gap(knob="vpp", value=strategy.vpp, reason=reason)
    if capability.fused_norms and {"norm", "mlp_norm"} & {*recompute_modules(strategy.recompute)}:
        yield Gap(knob="recompute", value=strategy.recompute, reason=reason)


def target_capability(target: str) -> Capability:
    """The newest capability whose plans are written in a format; any software's if there is none."""
    for entry in stack_entries().values():
        for each in (entry.capability, *entry.releases.values()):
            if each.target == target:
                return each
    return ANY


def _facts(handover: Handover) -> PlanFacts:
    arch = handover.architecture
    if arch is None:
        return PlanFacts(
            seq=handover.seq or 0, global_batch=handover.global_batch, optimizer=handover.optimizer,
            grad_dtype=handover.grad_dtype,
        )  # fmt: skip
    return PlanFacts(
        layers=arch.layers, heads=arch.heads, kv_heads=arch.kv_heads, experts=arch.experts,
        seq=handover.seq or arch.max_seq, global_batch=handover.global_batch, tied=arch.tied,
        windowed=bool(arch.window), sinks=arch.sinks, latent=bool(arch.kv_lora_rank),
        optimizer=handover.optimizer, grad_dtype=handover.grad_dtype,
    )  # fmt: skip


def written(value: object) -> str:
    """A knob's value as messages state it."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def refuse(strategy: Strategy, gaps: Iterable[Gap], target: str) -> None:
    """Raise for the knobs that a target cannot express."""
    listed = "; ".join(str(gap) for gap in gaps)
    if listed:
        raise BadInput(
            f"{target} cannot express plan", str(strategy), listed,
            "change these knobs, or use --lenient to leave them out and say so in the output",
        )  # fmt: skip


def without(strategy: Strategy, gaps: Iterable[Gap]) -> Strategy:
    """The strategy with the default for each knob that cannot be expressed."""
    knobs = {gap.knob for gap in gaps}
    knobs |= {follower for knob in knobs for follower in _FOLLOW.get(knob, ())}
    if "zero" in knobs:
        knobs.add("shard")
    if "schedule" in knobs:
        knobs.add("vpp")
    if "vpp" in knobs and strategy.schedule == "interleaved":
        knobs.add("schedule")
    return replace(strategy, **{knob: _DEFAULTS[knob] for knob in knobs})  # type: ignore[arg-type]
