"""Which tensors of a simulated step lie in expanded memory, and what that adds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainwright.cost.tiers import CLASSES, TABLES, Expansion, build_expansion, tier_shares
from trainwright.program.lower import Program
from trainwright.program.spill import Spilled
from trainwright.program.state import state_bytes
from trainwright.program.table import CATEGORIES, Floats
from trainwright.simulate.memory import Peaks, lifetimes, peaks
from trainwright.simulate.timeline import Timeline

_PARTS = {
    "kept": "activations",
    "working": "activations",
    TABLES: "weights",
}  # of classes of tensors, the part of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TierUse:
    """What one device has in an expanded tier, by part of memory, and what a step moves to and from it."""

    tier: str
    part_bytes: Mapping[str, float]
    traffic_bytes: float

    @property
    def total_bytes(self) -> float:
        """All that lies there."""
        return sum(self.part_bytes.values())


def find_spilled(program: Program, timeline: Timeline) -> Spilled | None:
    """Where tensors must lie, judged by what a step holds whose memory is all alike; None if all fit."""
    setting = program.setting
    expansion = build_expansion(setting.cluster, setting.efficiency)
    if expansion is None:
        return None
    found = peaks(timeline)
    more = 1.0 + setting.stack.reserve_share
    shares = {}
    for place, waiting in enumerate(_waiting_bytes(timeline, found)):
        sizes, pinned = _sizes(found, place, float(waiting), _tables(program, timeline, place), more)
        if pinned + sum(float(each[0]) for each in sizes.values()) > expansion.own_bytes:
            shares[place] = tier_shares(expansion, sizes, np.array([pinned]))
    return Spilled(expansion=expansion, shares=shares) if shares else None


def _tables(program: Program, timeline: Timeline, place: int) -> dict[str, float]:
    """Of the weights and the optimizer's state of a place, the bytes of tables that are looked up in."""
    device = timeline.table.places[place][0]
    found = {"weights": 0.0, "optimizer": 0.0}
    for builder, route in zip(program.builders, program.routes, strict=True):
        for bundle in route.bundles:
            if bundle.rows and device in bundle.mesh.devices:
                size = state_bytes(builder, bundle)
                found = {what: each + size[what] for what, each in found.items()}
    return found


def _sizes(
    found: Peaks, place: int, waiting: float, tables: Mapping[str, float], more: float
) -> tuple[dict[str, Floats], float]:
    """Bytes by class of tensors at a place's peak, each with its part of the reserve; and what is pinned."""
    parts = dict(zip(CATEGORIES, found.category_bytes[place].tolist(), strict=True))
    parts |= {what: max(parts[what] - size, 0.0) for what, size in tables.items()}
    classes = {
        TABLES: sum(tables.values()),
        **{name: parts[name] for name in ("optimizer", "gradients", "weights")},
        "kept": min(waiting, parts["activations"]),
        "working": max(parts["activations"] - waiting, 0.0),
    }
    return {name: np.array([more * classes[name]]) for name in CLASSES}, parts["buffers"]


def _waiting_bytes(timeline: Timeline, found: Peaks) -> Floats:
    """By place, the activations at its peak that forwards have left."""
    table, lives = timeline.table, lifetimes(timeline)
    peak_s = found.peak_s[table.buffer_place]
    forward = np.array([*(label.endswith(" F") for label in table.labels), False])
    label = np.append(table.label, len(table.labels))[table.buffer_from]
    waits = (lives.start_s <= peak_s) & (peak_s < lives.end_s) & forward[label]
    waits &= table.buffer_category == CATEGORIES.index("activations")
    return np.bincount(
        table.buffer_place[waits], table.buffer_bytes[waits], minlength=len(table.places)
    ).astype(float)


def tier_uses(
    program: Program, timeline: Timeline, found: Peaks, spilled: Spilled | None
) -> list[tuple[TierUse, ...]]:
    """What each place has in every expanded tier."""
    expansion = build_expansion(program.setting.cluster, program.setting.efficiency)
    places = range(len(timeline.table.places))
    if expansion is None:
        return [() for _ in places]
    more = 1.0 + program.setting.stack.reserve_share
    waiting = _waiting_bytes(timeline, found)
    return [
        _uses(
            expansion, _sizes(found, place, float(waiting[place]), _tables(program, timeline, place), more),
            spilled.traffic_bytes.get(place) if spilled else None,
        )
        for place in places
    ]  # fmt: skip


def _uses(
    expansion: Expansion, held: tuple[dict[str, Floats], float], moved: Sequence[float] | None
) -> tuple[TierUse, ...]:
    sizes, pinned = held
    shares = tier_shares(expansion, sizes, np.array([pinned]))
    result = []
    for tier, name in enumerate(expansion.names):
        parts = dict.fromkeys(("weights", "gradients", "optimizer", "activations"), 0.0)
        for each in CLASSES:
            parts[_PARTS.get(each, each)] += float(sizes[each][0] * shares[each][tier][0])
        result.append(TierUse(tier=name, part_bytes=parts, traffic_bytes=moved[tier] if moved else 0.0))
    return tuple(result)
