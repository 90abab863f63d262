"""Options on what interrupts a run, and how fast it is back."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.cli.money import parse_share
from trainwright.economics.goodput import Reliability
from trainwright.errors import BadInput
from trainwright.units import parse_quantity

_USUAL = Reliability()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """A field of a `Reliability` as an option: its unit, what to say of it, whether zero is nonsense."""

    field: str
    unit: str
    help: str
    positive: bool = False


_METAVARS = {"s": "TIME", "bytes": "SIZE", "bytes/s": "RATE", "/day": "RATE", "/device-day": "RATE"}
_OPTIONS: Mapping[str, _Option] = {
    "failures": _Option(
        field="failures_per_device_day", unit="/device-day",
        help='how often a device stops the run, like "1e-3 /device-day" (default: '
        f"{_USUAL.failures_per_device_day:.2g}, as of Llama 3 405B)",
    ),
    "detection": _Option(
        field="detection_s", unit="s",
        help=f'until a failure is found, like "10 min" (default: {_USUAL.detection_s / 60:g} min)',
    ),
    "restart": _Option(
        field="restart_s", unit="s", help=f"until steps go on (default: {_USUAL.restart_s / 60:g} min)"
    ),
    "checkpoint-bandwidth": _Option(
        field="node_bytes_per_s", unit="bytes/s", positive=True,
        help=f'of a node, like "2 GB/s" (default: {_USUAL.node_bytes_per_s / 1e9:g} GB/s)',
    ),
    "storage-bandwidth": _Option(
        field="storage_bytes_per_s", unit="bytes/s", positive=True,
        help=f"of all nodes together, at most (default: {_USUAL.storage_bytes_per_s / 1e12:g} TB/s)",
    ),
    "checkpoint-size": _Option(
        field="checkpoint_bytes", unit="bytes", positive=True,
        help='like "5 TB" (default: weights and optimizer state)',
    ),
    "checkpoint-interval": _Option(
        field="interval_s", unit="s", positive=True, help='like "30 min" (default: the best, by Daly)'
    ),
    "planned": _Option(
        field="planned_per_day", unit="/day",
        help='planned stops, like "1 /week" (default: '
        f"{_USUAL.planned_per_day:.2g} /day, as of Llama 3 405B)",
    ),
    "planned-time": _Option(
        field="planned_s", unit="s", help=f"that each takes (default: {_USUAL.planned_s / 60:g} min)"
    ),
}  # fmt: skip
NAMES = (*(name.replace("-", "_") for name in _OPTIONS), "jitter")  # of all options here


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in a group."""
    group = parser.add_argument_group("interruptions")
    for name, option in _OPTIONS.items():
        group.add_argument(f"--{name}", metavar=_METAVARS[option.unit], help=option.help)
    group.add_argument(
        "--jitter", metavar="SHARE",
        help=f"standard deviation of a node's time for a step (default: {_USUAL.step_jitter:g} of the step)",
    )  # fmt: skip


def parse_reliability(options: argparse.Namespace) -> Reliability:
    """What the options say of interruptions, and what is usual where they are silent."""
    stated: dict[str, Any] = {}
    for name, option in _OPTIONS.items():
        text = getattr(options, name.replace("-", "_"))
        if text is None:
            continue
        stated[option.field] = value = parse_quantity(text, option.unit, f"--{name}")
        if option.positive and value == 0:
            raise BadInput(f"--{name}", text, "is zero", "give more, or leave it out")
    if options.jitter is not None:
        stated["step_jitter"] = parse_share(options.jitter, "--jitter")
    return Reliability(**stated)
