"""Options on money and carbon: rented or owned devices, electricity, the grid."""

import argparse
from dataclasses import dataclass, replace

from trainwright.cluster.types import Cluster
from trainwright.economics import money
from trainwright.economics.money import Ownership, usual_capital
from trainwright.errors import BadInput
from trainwright.units import parse_number, parse_quantity

_OF_OWNERS = ("capital", "network_share", "amortize", "electricity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A cluster whose device has the price of an hour, and what comes on top of it."""

    cluster: Cluster
    dollars_per_kwh: float
    grid_kg_per_kwh: float
    note: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in a group."""
    group = parser.add_argument_group("money and carbon")
    group.add_argument("--price", metavar="PRICE", help='rent per device and hour, like "2.5 $/h"')
    group.add_argument(
        "--own", action="store_true", help="devices are bought: capital over its years, and electricity"
    )
    group.add_argument(
        "--capital", metavar="$",
        help='of a device with its share of a server, like "37500 $" '
        f"(default: {money.CAPITAL_HOURS:,.0f} hours of its rent)",
    )  # fmt: skip
    group.add_argument(
        "--network-share", metavar="SHARE",
        help=f"of the network in all capital (default: {money.NETWORK_SHARE:g})",
    )  # fmt: skip
    group.add_argument(
        "--amortize", metavar="TIME",
        help=f'how long devices are used, like "4 years" (default: {money.AMORTISATION_YEARS:g} years)',
    )  # fmt: skip
    group.add_argument(
        "--electricity", metavar="PRICE",
        help=f'of owned devices, like "0.1 $/kWh" (default: {money.DOLLARS_PER_KWH:g} $/kWh)',
    )  # fmt: skip
    group.add_argument(
        "--grid", metavar="INTENSITY",
        help=f'CO2e of electricity, like "400 g/kWh" (default: {1e3 * money.GRID_KG_PER_KWH:g} g/kWh, '
        "the world's mean)",
    )  # fmt: skip


def parse_prices(options: argparse.Namespace, cluster: Cluster) -> Prices:
    """The prices that the options describe."""
    grid = parse_quantity(options.grid, "kg/kWh", "--grid") if options.grid else money.GRID_KG_PER_KWH
    carbon = f"{1e3 * grid:g} g CO₂e per kWh"
    if options.own:
        owned = _ownership(options, cluster)
        hourly, dollars_per_kwh = owned.dollars_per_device_hour, owned.dollars_per_kwh
        words = (
            f"Owned: {owned.capital_dollars:,.0f} $ a device, {owned.network_share:.0%} of all capital for "
            f"the network, over {owned.years:g} years: {hourly:.3g} $ per device-hour, and "
            f"{dollars_per_kwh:g} $ per kWh"
        )
    else:
        for name in _OF_OWNERS:
            if getattr(options, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise BadInput(option, getattr(options, name), "is for owned devices", "add --own")
        hourly, dollars_per_kwh = cluster.device.price_per_hour, 0.0
        if options.price:
            hourly = parse_quantity(options.price, "$/h", "--price")
        words = f"Rented at {hourly:g} $ per device-hour, electricity included"
    device = replace(cluster.device, price_per_hour=hourly)
    return Prices(
        cluster=replace(cluster, device=device),
        dollars_per_kwh=dollars_per_kwh,
        grid_kg_per_kwh=grid,
        note=f"{words}; {carbon}",
    )


def _ownership(options: argparse.Namespace, cluster: Cluster) -> Ownership:
    if options.price:
        raise BadInput(
            "--price", options.price, "is of rented devices", "state --capital, or leave out --own"
        )
    device = cluster.device
    if options.capital is None and device.price_per_hour == 0:
        raise BadInput("--own", device.name, "has no price to tell its capital from", "state --capital")
    share, years = money.NETWORK_SHARE, money.AMORTISATION_YEARS
    if options.network_share:
        share = parse_share(options.network_share, "--network-share")
    if options.amortize:
        years = parse_quantity(options.amortize, "years", "--amortize")
    if years == 0:
        raise BadInput("--amortize", options.amortize, "is zero", 'write it like "4 years"')
    return Ownership(
        capital_dollars=parse_quantity(options.capital, "$", "--capital")
        if options.capital
        else usual_capital(device.price_per_hour),
        network_share=share,
        years=years,
        dollars_per_kwh=parse_quantity(options.electricity, "$/kWh", "--electricity")
        if options.electricity
        else money.DOLLARS_PER_KWH,
    )


def parse_share(text: str, thing: str) -> float:
    """A plain number from 0 to below 1."""
    value = 0.0 if text.strip() == "0" else parse_number(text, thing, "0.2")
    if value >= 1:
        raise BadInput(thing, text, "is not below 1", "write it like 0.2")
    return value
