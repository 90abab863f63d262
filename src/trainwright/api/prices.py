"""Money and carbon: rented or owned devices, electricity, the grid."""

from dataclasses import dataclass, replace

from trainwright.api.fields import Quantity, refuse
from trainwright.api.terms_fields import PriceFields
from trainwright.cluster.types import Cluster
from trainwright.economics import money
from trainwright.economics.money import Ownership, usual_capital
from trainwright.errors import BadInput
from trainwright.units import parse_amount, parse_number

_OF_OWNERS = ("capital", "network_share", "amortize", "electricity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """A cluster whose device has the price of an hour, and what comes on top of it."""

    cluster: Cluster
    dollars_per_kwh: float
    grid_kg_per_kwh: float
    note: str


def build_prices(request: PriceFields, cluster: Cluster) -> Prices:
    """The prices that a request describes."""
    grid = _amount(request.grid, "kg/kWh", "--grid", money.GRID_KG_PER_KWH)
    carbon = f"{1e3 * grid:g} g CO₂e per kWh"
    if request.own:
        owned = _ownership(request, cluster)
        hourly, dollars_per_kwh = owned.dollars_per_device_hour, owned.dollars_per_kwh
        words = (
            f"Owned: {owned.capital_dollars:,.0f} $ a device, {owned.network_share:.0%} of all capital for "
            f"the network, over {owned.years:g} years: {hourly:.3g} $ per device-hour, and "
            f"{dollars_per_kwh:g} $ per kWh"
        )
    else:
        refuse(request, _OF_OWNERS, "is for owned devices", "add --own")
        hourly, dollars_per_kwh = cluster.device.price_per_hour, 0.0
        hourly = _amount(request.price, "$/h", "--price", hourly)
        words = f"Rented at {hourly:g} $ per device-hour, electricity included"
    device = replace(cluster.device, price_per_hour=hourly)
    return Prices(
        cluster=replace(cluster, device=device),
        dollars_per_kwh=dollars_per_kwh,
        grid_kg_per_kwh=grid,
        note=f"{words}; {carbon}",
    )


def _ownership(request: PriceFields, cluster: Cluster) -> Ownership:
    refuse(request, ("price",), "is of rented devices", "state --capital, or leave out --own")
    device = cluster.device
    if request.capital is None and device.price_per_hour == 0:
        raise BadInput("--own", device.name, "has no price to tell its capital from", "state --capital")
    share = money.NETWORK_SHARE
    if request.network_share is not None:
        share = parse_share(request.network_share, "--network-share")
    years = _amount(request.amortize, "years", "--amortize", money.AMORTISATION_YEARS)
    if years == 0:
        raise BadInput("--amortize", request.amortize, "is zero", 'write it like "4 years"')
    return Ownership(
        capital_dollars=_amount(request.capital, "$", "--capital", usual_capital(device.price_per_hour)),
        network_share=share,
        years=years,
        dollars_per_kwh=_amount(request.electricity, "$/kWh", "--electricity", money.DOLLARS_PER_KWH),
    )


def _amount(stated: Quantity | None, unit: str, thing: str, usual: float) -> float:
    return usual if stated is None else parse_amount(stated, unit, thing)


def parse_share(stated: Quantity, thing: str) -> float:
    """A plain number from 0 to below 1."""
    value = 0.0 if str(stated).strip() == "0" else parse_number(stated, thing, "0.2")
    if value >= 1:
        raise BadInput(thing, stated, "is not below 1", "write it like 0.2")
    return value
