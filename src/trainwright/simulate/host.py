"""What a step keeps on the hosts: optimizer state, and activations between their two copies."""

import numpy as np

from trainwright.program.lower import Program
from trainwright.program.state import state_bytes
from trainwright.program.table import Floats
from trainwright.simulate.timeline import Timeline


def host_bytes(program: Program, timeline: Timeline) -> Floats:
    """By place, the most bytes that one of its devices has on the host at once."""
    return _optimizer_bytes(program, timeline) + _activation_bytes(program, timeline)


def _optimizer_bytes(program: Program, timeline: Timeline) -> Floats:
    places = timeline.table.places
    held = np.zeros(len(places))
    for route, builder in zip(program.routes, program.builders, strict=True):
        for bundle in route.bundles:
            if "optimizer" in bundle.offloads:
                devices = set(bundle.mesh.devices)
                size = state_bytes(builder, bundle)["optimizer"]
                held += [size * (place[0] in devices) for place in places]
    return held


def _activation_bytes(program: Program, timeline: Timeline) -> Floats:
    """A copy to the host holds from its start, the copy back frees at its end."""
    table = timeline.table
    sizes = {
        f"{step.name} copy": step.bytes * (1.0 if step.phase == "F" else -1.0)
        for route in program.routes
        for step in route.steps
        if step.kind == "copy"
    }
    held = np.zeros(len(table.places))
    if not sizes:
        return held
    change = np.array([sizes.get(label.rpartition(" ")[0], 0.0) for label in table.labels])[table.label]
    copies = np.flatnonzero(change)
    at_s = np.where(change[copies] > 0, timeline.start_s[copies], timeline.end_s[copies])
    order = copies[np.argsort(at_s, kind="stable")]
    place = table.unit_place[table.lane_unit[table.lane[order]]]
    for each in range(len(held)):
        held[each] = np.cumsum(change[order[place == each]]).max(initial=0.0)
    return held
