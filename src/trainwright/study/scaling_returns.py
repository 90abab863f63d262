"""What an added device, watt or dollar adds along a curve, and where curves bend or cross."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf, log

from trainwright.study.scaling_points import Point

HALF = 0.5  # of its share, that a device must add not to be beyond the knee


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One kind of plan over growing scales; scales at which nothing fits are left out."""

    study: str
    case: str  # what is varied: a model, a length, a device, a batch
    plan: str
    points: tuple[Point, ...]

    def at(self, devices: int) -> Point | None:
        """The point of a scale."""
        return next((each for each in self.points if each.devices == devices), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """What the step from one scale to the next adds; dollars at the price of a device-hour.

    `share` is that of a device: what an added one adds over what each gave at the curve's first scale.
    """

    devices: int
    more: int  # the next scale
    tokens_per_s_per_device: float
    tokens_per_joule: float  # tokens/s for an added watt at the meter
    tokens_per_dollar: float
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Where a plan overtakes another: the first scale compared, and between scales by interpolation."""

    plan: str
    first: int | None  # None: nowhere
    about: float | None
    gain: float  # at the last scale that both have


def marginals(curve: Curve) -> list[Marginal]:
    """Of each pair of neighbouring scales."""
    return [_marginal(curve.points[0], low, high) for low, high in pairwise(curve.points)]


def _marginal(first: Point, low: Point, high: Point) -> Marginal:
    added = high.tokens_per_s - low.tokens_per_s
    one = added / (high.devices - low.devices)
    dollars_per_hour = high.dollars_per_hour - low.dollars_per_hour
    return Marginal(
        devices=low.devices, more=high.devices, tokens_per_s_per_device=one,
        tokens_per_joule=added / (high.power_w - low.power_w),
        tokens_per_dollar=3600.0 * added / dollars_per_hour if dollars_per_hour else inf,
        share=one / first.tokens_per_s_per_device,
    )  # fmt: skip


def knee(curve: Curve) -> int | None:
    """The scale beyond which an added device adds less than half of its share; None if there is none."""
    return next((each.devices for each in marginals(curve) if each.share < HALF), None)


def crossing(curve: Curve, over: Curve) -> Crossing:
    """The first scale from which a curve stays above another, on scales that both have."""
    pairs = [(each, other) for each in curve.points if (other := over.at(each.devices)) is not None]
    gains = [(each.devices, each.tokens_per_s / other.tokens_per_s - 1.0) for each, other in pairs]
    ahead: list[int] = []
    for devices, gain in reversed(gains):
        if gain <= 0:
            break
        ahead.append(devices)
    first = ahead[-1] if ahead else None
    return Crossing(
        plan=curve.plan, first=first, about=_between(gains, first), gain=gains[-1][1] if gains else 0.0
    )


def _between(gains: Sequence[tuple[int, float]], first: int | None) -> float | None:
    """Where the gain passes zero before the first scale, linear in the logarithm of devices."""
    for (low, below), (high, above) in pairwise(gains):
        if high == first:
            return exp(log(low) + (log(high) - log(low)) * -below / (above - below))
    return float(first) if first is not None else None
