"""Fields that say what a whole run is priced with: its target, its interruptions, money and carbon."""

from dataclasses import dataclass
from functools import partial

from trainwright.api.fields import Quantity, Request, option
from trainwright.economics import money
from trainwright.economics.goodput import Reliability

_target = partial(option, group="target")
_stops = partial(option, group="interruptions")
_money = partial(option, group="money and carbon")
_USUAL = Reliability()


@dataclass(frozen=True, kw_only=True)
class TargetFields(Request):
    """When a run is done: a token budget or a loss, and the batch beyond which tokens are wasted."""

    tokens: Quantity | None = _target(
        "token budget, like 15T (default: 20 per parameter)", "N", either="target"
    )
    target_loss: Quantity | None = _target(
        "train until this loss by a scaling law, with more tokens for a batch near the critical one", "NATS",
        either="target",
    )  # fmt: skip
    scaling_law: str | None = _target("hoffmann (2022) or besiroglu (2024) (default: hoffmann)", "NAME")
    critical_batch: Quantity | None = _target(
        "in tokens, like 8M, or none; also charges --tokens (default: by loss, Kaplan et al. 2020, and only "
        "--target-loss and --batch-range are charged)", "N",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReliabilityFields(Request):
    """What interrupts a run, and how fast it is back; defaults as of Llama 3 405B."""

    failures: Quantity | None = _stops(
        'how often a device stops the run, like "1e-3 /device-day" (default: '
        f"{_USUAL.failures_per_device_day:.2g}, as of Llama 3 405B)", "RATE", unit="/device-day",
    )  # fmt: skip
    detection: Quantity | None = _stops(
        f'until a failure is found, like "10 min" (default: {_USUAL.detection_s / 60:g} min)', "TIME",
        unit="s",
    )  # fmt: skip
    restart: Quantity | None = _stops(
        f"until steps go on (default: {_USUAL.restart_s / 60:g} min)", "TIME", unit="s"
    )
    checkpoint_bandwidth: Quantity | None = _stops(
        f'of a node, like "2 GB/s" (default: {_USUAL.node_bytes_per_s / 1e9:g} GB/s)', "RATE", unit="B/s"
    )
    storage_bandwidth: Quantity | None = _stops(
        f"of all nodes together, at most (default: {_USUAL.storage_bytes_per_s / 1e12:g} TB/s)", "RATE",
        unit="B/s",
    )  # fmt: skip
    checkpoint_size: Quantity | None = _stops(
        'like "5 TB" (default: weights and optimizer state)', "SIZE", unit="B"
    )
    checkpoint_interval: Quantity | None = _stops(
        'like "30 min" (default: the best, by Daly)', "TIME", unit="s"
    )
    planned: Quantity | None = _stops(
        f'planned stops, like "1 /week" (default: {_USUAL.planned_per_day:.2g} /day, as of Llama 3 405B)',
        "RATE", unit="/day",
    )  # fmt: skip
    planned_time: Quantity | None = _stops(
        f"that each takes (default: {_USUAL.planned_s / 60:g} min)", "TIME", unit="s"
    )
    jitter: Quantity | None = _stops(
        f"standard deviation of a node's time for a step (default: {_USUAL.step_jitter:g} of the step)",
        "SHARE",
    )


@dataclass(frozen=True, kw_only=True)
class PriceFields(Request):
    """Rented or owned devices, electricity, the grid."""

    price: Quantity | None = _money('rent per device and hour, like "2.5 $/h"', "PRICE", unit="$/h")
    own: bool = _money("devices are bought: capital over its years, and electricity", default=False)
    capital: Quantity | None = _money(
        'of a device with its share of a server, like "37500 $" '
        f"(default: {money.CAPITAL_HOURS:,.0f} hours of its rent)", "$", unit="$",
    )  # fmt: skip
    network_share: Quantity | None = _money(
        f"of the network in all capital (default: {money.NETWORK_SHARE:g})", "SHARE"
    )
    amortize: Quantity | None = _money(
        f'how long devices are used, like "4 years" (default: {money.AMORTISATION_YEARS:g} years)',
        "TIME",
        unit="years",
    )
    electricity: Quantity | None = _money(
        f'of owned devices, like "0.1 $/kWh" (default: {money.DOLLARS_PER_KWH:g} $/kWh)',
        "PRICE",
        unit="$/kWh",
    )
    grid: Quantity | None = _money(
        f'CO2e of electricity, like "400 g/kWh" (default: {1e3 * money.GRID_KG_PER_KWH:g} g/kWh, the '
        "world's mean)", "INTENSITY", unit="kg/kWh",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TermsFields(PriceFields, ReliabilityFields, TargetFields):
    """All that a predicted step is priced with."""
