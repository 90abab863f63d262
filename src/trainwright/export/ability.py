"""What a target can be told, and what of a plan it cannot."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from trainwright.errors import BadInput
from trainwright.export.canonical import canonical
from trainwright.plan.mapping import AXES, ORDERS, canonical_order
from trainwright.plan.strategy import CP_KINDS, OFFLOADS, PRECISIONS, SCHEDULES, Strategy

_DEFAULTS = {field.name: field.default for field in fields(Strategy)}
# Knobs that have no meaning without another one.
_FOLLOW = {"pp": ("vpp", "schedule"), "cp": ("cp_kind",), "tp": ("sp",), "recompute": ("recompute_layers",)}
_SAID = {"micro_batch": "mb", "shard": "hsdp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A knob that a target cannot express, and why."""

    knob: str
    value: object
    reason: str

    def __str__(self) -> str:
        return f"{_SAID.get(self.knob, self.knob)} {self.value}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """The values of each knob that a target has words for."""

    axes: tuple[str, ...] = ("tp", "cp", "pp", "vpp", "ep", "etp")
    sp: tuple[bool, ...] = (False, True)  # with tensor parallelism
    cp_kinds: tuple[str, ...] = CP_KINDS
    zeros: tuple[int, ...] = (0, 1, 2, 3)
    hybrid: tuple[int, ...] = (1, 2, 3)  # stages whose shards may span less than all ranks
    schedules: tuple[str, ...] = SCHEDULES
    recomputes: tuple[str, ...] = ("none", "selective", "full")
    some_layers: bool = True  # full recomputation of a part of the layers
    offloads: tuple[str, ...] = OFFLOADS
    precisions: tuple[str, ...] = PRECISIONS
    overlaps: tuple[bool, ...] = (True, False)
    orders: tuple[str, ...] = ORDERS[:1]  # in which axes lie on the network, innermost first


def ability_gaps(strategy: Strategy, ability: Ability, target: str) -> Iterator[Gap]:
    """The knobs of a strategy whose values are none of a target's."""
    plain = canonical(strategy)
    for axis in ("tp", "cp", "pp", "vpp", "ep", "etp"):
        degree = getattr(plain, axis)
        if degree > 1 and axis not in ability.axes:
            yield Gap(knob=axis, value=degree, reason=f"{target} has no setting for it")
    choices: tuple[tuple[str, tuple[object, ...], bool], ...] = (
        ("sp", ability.sp, plain.tp > 1),
        ("cp_kind", ability.cp_kinds, plain.cp > 1 and "cp" in ability.axes),
        ("zero", ability.zeros, plain.dp * plain.cp > 1),
        ("schedule", ability.schedules, plain.pp > 1 and "pp" in ability.axes),
        ("recompute", ability.recomputes, True),
        ("offload", ability.offloads, True),
        ("precision", ability.precisions, True),
        ("overlap", ability.overlaps, True),
    )
    for knob, known, asked in choices:
        value = getattr(plain, knob)
        if asked and value not in known:
            listed = ", ".join(_written(each) for each in known)
            yield Gap(knob=knob, value=_written(value), reason=f"{target} has {listed}")
    if plain.shard and plain.zero in ability.zeros and plain.zero not in ability.hybrid:
        reason = f"{target} shards stage {plain.zero} over all data-parallel ranks"
        yield Gap(knob="shard", value=plain.shard, reason=reason)
    sizes = {axis: getattr(plain, axis) for axis in AXES}
    if plain.order not in (ORDERS[0], *(canonical_order(each, sizes) for each in ability.orders)):
        reason = f"{target} has {', '.join(ability.orders)}: where ranks stand is the launcher's to say"
        yield Gap(knob="order", value=plain.order, reason=reason)
    if plain.recompute_layers and not ability.some_layers and plain.recompute in ability.recomputes:
        reason = f"{target} recomputes every layer or none"
        yield Gap(knob="recompute_layers", value=plain.recompute_layers, reason=reason)


def _written(value: object) -> str:
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
