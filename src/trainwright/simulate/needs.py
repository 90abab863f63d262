"""What each place of a step needs when it is fullest, and whether there is as much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainwright.errors import InfeasiblePlan
from trainwright.program.lower import Program
from trainwright.program.spill import Spilled
from trainwright.program.table import CATEGORIES, Table
from trainwright.simulate.host import host_bytes
from trainwright.simulate.memory import Peaks
from trainwright.simulate.tiers import TierUse, tier_uses
from trainwright.simulate.timeline import Timeline
from trainwright.units import render_bytes

_STATE = ("weights", "gradients", "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What each device of a place needs when it is fullest, by category, a reserve for fragments included.

    `tiers` says what of it lies in expanded memory.
    """

    devices: tuple[int, ...]
    stages: tuple[int, ...]  # that it has operators of
    peak_s: float  # when it is fullest
    category_bytes: Mapping[str, float]
    total_bytes: float
    host_bytes: float
    tiers: tuple[TierUse, ...] = ()


def needs(
    program: Program, timeline: Timeline, found: Peaks, spilled: Spilled | None = None
) -> tuple[Need, ...]:
    """The need of each place."""
    table, reserve = timeline.table, program.setting.stack.reserve_share
    hosts, stages = host_bytes(program, timeline), _stages(program, table)
    uses = tier_uses(program, timeline, found, spilled)
    result = []
    for place, devices in enumerate(table.places):
        parts = dict(zip(CATEGORIES, found.category_bytes[place].tolist(), strict=True))
        parts["reserve"] = reserve * sum(size for name, size in parts.items() if name != "buffers")
        result.append(
            Need(
                devices=devices, stages=stages[place], peak_s=float(found.peak_s[place]),
                category_bytes=parts, total_bytes=sum(parts.values()), host_bytes=float(hosts[place]),
                tiers=uses[place],
            )
        )  # fmt: skip
    return tuple(result)


def check_needs(program: Program, needed: Sequence[Need]) -> None:
    """Raise if a device, or its host, has less than it needs: the worst stage and device, and a remedy."""
    worst = max(needed, key=lambda each: each.total_bytes)
    capacity = program.setting.cluster.capacity_bytes
    if worst.total_bytes > capacity:
        state = sum(worst.category_bytes[name] for name in _STATE)
        remedy = "shard its state" if state > capacity else "recompute its activations"
        raise _miss(program, worst, (worst.total_bytes, capacity), f"split it further or {remedy}")
    worst = max(needed, key=lambda each: each.host_bytes)
    room = program.setting.cluster.host_room_bytes
    if worst.host_bytes > room:
        raise _miss(program, worst, (worst.host_bytes, room), "offload less", where="the host of ")


def _miss(
    program: Program, worst: Need, sizes: tuple[float, float], remedy: str, where: str = ""
) -> InfeasiblePlan:
    needed, has = map(render_bytes, sizes)
    who = render_stages(worst.stages) if program.plan.stages else "it"
    verb = "need" if program.plan.stages and len(worst.stages) > 1 else "needs"
    return InfeasiblePlan(
        f'plan "{program.plan.name}": {who} {verb} {needed} on {where}device {worst.devices[0]}, '
        f"which has {has}; {remedy}",
        nearest=program.plan.name, needed_bytes=sizes[0], capacity_bytes=sizes[1],
    )  # fmt: skip


def render_stages(stages: Sequence[int]) -> str:
    """Stages by number: `stage 3`, `stages 0, 7`."""
    return ("stage " if len(stages) == 1 else "stages ") + ", ".join(map(str, stages))


def _stages(program: Program, table: Table) -> list[tuple[int, ...]]:
    homes = {
        (stage, id(placed.mesh.devices)): placed.mesh.devices
        for route in program.routes
        for stage, placed in zip(program.stages, route.placed, strict=True)
    }
    found: dict[int, set[int]] = {}
    for (stage, _), devices in homes.items():
        for device in devices:
            found.setdefault(device, set()).add(stage)
    return [tuple(sorted(found.get(devices[0], ()))) for devices in table.places]
