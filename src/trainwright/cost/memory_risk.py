"""The probability that a plan runs out of memory, from how predicted peaks compare with measured ones.

The logarithm of measured over predicted memory is taken as normal, with a mean and a deviation that come from
sources left out of the fit. A plan runs out of memory if its peak exceeds what the device's runtime reports.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from trainwright.errors import BadInput
from trainwright.units import parse_number

Array = NDArray[np.float64]
_NORMAL = NormalDist()
LEAST_RISK, MOST_RISK = 0.001, 0.5
DEFAULT_RISK = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpread:
    """Measured peak memory against predicted: mean and deviation of the logarithm of their ratio."""

    mean: float = 0.0
    deviation: float = 0.12
    rows: int = 0  # measured peaks and outcomes that they rest on

    def oom_risk(self, needed_bytes: float, usable_bytes: float) -> float:
        """The probability that a plan which is predicted to need so much exceeds what is usable."""
        if needed_bytes <= 0.0:
            return 0.0
        return 1.0 - _NORMAL.cdf((np.log(usable_bytes / needed_bytes) - self.mean) / self.deviation)

    def filled_share(self, risk: float) -> float:
        """The share of usable memory that a plan may be predicted to fill at a given risk."""
        return float(np.exp(-(self.mean + _NORMAL.inv_cdf(1.0 - risk) * self.deviation)))

    def bounds(self, needed_bytes: float) -> tuple[float, float]:
        """Between which bytes nine in ten measurements lie."""
        reach = _NORMAL.inv_cdf(0.95) * self.deviation
        middle = needed_bytes * np.exp(self.mean)
        return float(middle * np.exp(-reach)), float(middle * np.exp(reach))


UNKNOWN_SPREAD = MemorySpread()  # until one is fitted


def parse_percent(value: object, thing: str) -> float:
    """A share that is a number below 1, or is written as one or as a percentage."""
    text = str(value)
    number = text.strip().removesuffix("%")
    value = 0.0 if number.strip() in ("0", "0.0") else parse_number(number, thing, "5%")
    return value / 100.0 if text.strip().endswith("%") else value


def parse_risk(value: object, thing: str) -> float:
    """The largest probability of running out of memory that a plan may have."""
    risk = parse_percent(value, thing)
    if not LEAST_RISK <= risk <= MOST_RISK:
        rule = f"is not between {LEAST_RISK:.1%} and {MOST_RISK:.0%}"
        raise BadInput(thing, value, rule, "write it like 5%")
    return risk
