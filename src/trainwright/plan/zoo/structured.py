"""Plans that the knobs of a strategy describe, on a given number of devices."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from trainwright.errors import BadInput
from trainwright.model.graph import Graph
from trainwright.plan.expand import Axes, expand
from trainwright.plan.plan import Plan
from trainwright.plan.stages import Staging
from trainwright.plan.strategy import Strategy

# What a plan of the zoo may be told besides its own parameters; dp is what the other degrees leave of the
# devices, and the schedule is the plan's.
KNOBS: Mapping[str, Any] = {
    each.name: each.default for each in fields(Strategy) if each.name not in ("dp", "schedule", "vpp")
}
REST = 0  # of a degree: all the devices that the other degrees leave


def structured(
    graph: Graph,
    devices: int,
    batch: int,
    *,
    staging: Staging | None = None,
    axes: Axes | None = None,
    **knobs: Any,
) -> Plan:
    """The plan of some knobs, with a schedule and splits of its own if they are given."""
    return expand(fill(devices, **knobs), graph, batch, staging=staging, axes=axes)


def fill(devices: int, **knobs: Any) -> Strategy:
    """The strategy of some knobs on all devices: a degree of REST takes what others leave, else dp does."""
    degrees = {name: knobs.get(name, 1) for name in ("tp", "cp", "pp")}
    taken = 1
    for degree in degrees.values():
        taken *= degree or 1
    if taken < 1 or devices % taken:
        raise BadInput(
            "plan: degrees", " ".join(f"{name}={degree}" for name, degree in degrees.items()),
            f"their product does not divide {devices} devices", "choose other degrees",
        )  # fmt: skip
    open_ = [name for name, degree in degrees.items() if degree == REST]
    filled = {name: devices // taken if name == open_[0] else 1 for name in open_}
    return Strategy(dp=1 if open_ else devices // taken, **(knobs | filled))
