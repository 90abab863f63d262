"""Money and carbon of a run on devices that are rented or owned.

    dollars = device-hours x dollars per device-hour + kWh x dollars per kWh

A rent includes electricity. Owned devices cost their capital, spread evenly over the years they are used,
and electricity beside that; a run pays for the hours that it takes, not for those between runs.
"""

from dataclasses import dataclass

HOURS_PER_YEAR = 8766.0  # of 365.25 days

# What a device with its share of a server costs, in hours of its rent on demand. An eight-device server over
# eight times the rent, prices recalled: DGX A100 199,000 $ (2020) and 1.79 $/h, 13,900 h; DGX H100 about
# 300,000 $ (2023) and 2.99 $/h, 12,500 h; DGX B200 about 515,000 $ (2024) and 4.99 $/h, 12,900 h.
CAPITAL_HOURS = 12_500.0

# Of all capital: Cottier et al. 2024 (arXiv 2405.21015) have 44 % chips, 29 % other parts of servers, 17 %
# network of the cluster, 9 % energy; so 17 / (44 + 29 + 17).
NETWORK_SHARE = 0.19

AMORTISATION_YEARS = 4.0  # clouds state 5 to 6 for servers; accelerators are replaced sooner
DOLLARS_PER_KWH = 0.08  # U.S. industrial sector, mean of 2023 (EIA, Electric Power Monthly, table 5.3)
GRID_KG_PER_KWH = 0.48  # the world's mean of 2023 (Ember, Global Electricity Review 2024); U.S. about 0.37


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Devices that were bought: `capital_dollars` is for one device and its share of a server.

    `network_share` is the network's share of all capital, the devices' included.
    """

    capital_dollars: float
    network_share: float = NETWORK_SHARE
    years: float = AMORTISATION_YEARS
    dollars_per_kwh: float = DOLLARS_PER_KWH

    @property
    def whole_dollars(self) -> float:
        """The capital of one device with its shares of a server and of the network."""
        return self.capital_dollars / (1.0 - self.network_share)

    @property
    def dollars_per_device_hour(self) -> float:
        """The capital that an hour uses up; electricity comes on top."""
        return self.whole_dollars / (self.years * HOURS_PER_YEAR)


def usual_capital(dollars_per_hour: float) -> float:
    """The capital of a device that is rented at this price, with its share of a server."""
    return CAPITAL_HOURS * dollars_per_hour
