"""What devices draw in a simulated step."""

from dataclasses import dataclass, replace

import numpy as np

from trainwright.cluster.power import Activity, activity_of, device_w, power_w
from trainwright.simulate.timeline import COMMUNICATION_CAUSES
from trainwright.simulate.whole import Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Power in a step: of the mean device, of each place's devices, and at the meter of all in the plan."""

    device_w: float
    place_w: tuple[float, ...]
    power_w: float


def drawn(simulated: Simulated) -> Drawn:
    """By what each place does: the same activities as a closed form's, each place at its own.

    Devices of the cluster that the plan leaves out are not counted.
    """
    setting, places = simulated.program.setting, simulated.timeline.table.places
    cluster = replace(setting.cluster, count=simulated.plan.devices)
    each_w, meter_w = [], []
    for place in range(len(places)):
        activity = _activity(simulated, place)
        each_w.append(float(device_w(cluster, activity)))
        meter_w.append(float(power_w(cluster, activity)))
    devices = [len(each) for each in places]
    return Drawn(
        device_w=float(np.average(each_w, weights=devices)),
        place_w=tuple(each_w),
        power_w=float(np.average(meter_w, weights=devices)),
    )


def _activity(simulated: Simulated, place: int) -> Activity:
    """Moves to and from the host stream memory; they are no communication between devices."""
    found = simulated.breakdown
    time_s = {cause: float(seconds[place]) for cause, seconds in found.time_s.items()}
    between = [cause for cause in COMMUNICATION_CAUSES if cause != "offload"]
    sent = found.communication_s
    return activity_of(
        time_s, {cause: float(sent[cause][place]) for cause in between if cause in sent}, simulated.step_s
    )
