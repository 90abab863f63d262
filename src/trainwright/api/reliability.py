"""What interrupts a run, and how fast it is back."""

from typing import Any

from trainwright.api.fields import flag_of
from trainwright.api.prices import parse_share
from trainwright.api.terms_fields import ReliabilityFields
from trainwright.economics.goodput import Reliability
from trainwright.errors import BadInput
from trainwright.units import parse_amount

# The field of a `Reliability` and the unit of each field of a request; whether zero makes no sense.
_UNITS = {
    "failures": ("failures_per_device_day", "/device-day", False),
    "detection": ("detection_s", "s", False),
    "restart": ("restart_s", "s", False),
    "checkpoint_bandwidth": ("node_bytes_per_s", "bytes/s", True),
    "storage_bandwidth": ("storage_bytes_per_s", "bytes/s", True),
    "checkpoint_size": ("checkpoint_bytes", "bytes", True),
    "checkpoint_interval": ("interval_s", "s", True),
    "planned": ("planned_per_day", "/day", False),
    "planned_time": ("planned_s", "s", False),
}


def build_reliability(request: ReliabilityFields) -> Reliability:
    """What a request says of interruptions, and what is usual where it says nothing."""
    stated: dict[str, Any] = {}
    for name, (field, unit, positive) in _UNITS.items():
        value = getattr(request, name)
        if value is None:
            continue
        stated[field] = parse_amount(value, unit, flag_of(name))
        if positive and stated[field] == 0:
            raise BadInput(flag_of(name), value, "is zero", "give more, or leave it out")
    if request.jitter is not None:
        stated["step_jitter"] = parse_share(request.jitter, "--jitter")
    return Reliability(**stated)
