"""A deadline or a budget, and how many devices may be had."""

from dataclasses import dataclass
from math import inf

from trainwright.api.fields import Range, refuse, value_text
from trainwright.api.plan_request import PlanRequest
from trainwright.api.sources import read_cluster
from trainwright.errors import BadInput
from trainwright.units import parse_number, parse_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """A deadline, a budget (infinite: none), and the counts of devices that may be had."""

    max_days: float
    max_dollars: float
    least: int
    most: int

    def __str__(self) -> str:
        words = []
        if self.max_days < inf:
            words.append(f"{self.max_days:g} days")
        if self.max_dollars < inf:
            words.append(f"{self.max_dollars:,.0f} $")
        return " and ".join(words)


def build_limits(request: PlanRequest) -> Limits | None:
    """The limits that a request sets, if any."""
    if request.max_days is None and request.max_dollars is None:
        if request.devices_range is not None:
            remedy = "add --max-days or --max-dollars"
            raise BadInput("--devices-range", request.devices_range, "goes with a deadline or budget", remedy)
        return None
    limit = "--max-dollars" if request.max_days is None else "--max-days"
    rule = f"is for one cluster, and {limit} looks for the smallest one"
    refuse(request, ("flexible", "pareto"), rule, "plan again for the device count that is found")
    days, dollars = (
        parse_number(value, option, example) if value is not None else inf
        for value, option, example in (
            (request.max_days, "--max-days", "30"),
            (request.max_dollars, "--max-dollars", "5e6"),
        )
    )
    least, most = _range(request.devices_range, read_cluster(request.cluster).count)
    return Limits(max_days=days, max_dollars=dollars, least=least, most=most)


def _range(stated: Range | None, count: int) -> tuple[int, int]:
    if stated is None:
        return 1, count
    text = value_text(stated, "..")
    first, dots, last = text.partition("..")
    if not dots:
        raise BadInput("--devices-range", text, "has no end", "write it like 64..1024")
    least, most = (parse_whole(each, "--devices-range", most=count) for each in (first, last))
    if least > most:
        raise BadInput("--devices-range", text, "starts above its end", "write it like 64..1024")
    return least, most


def device_counts(limits: Limits, node: int) -> tuple[int, ...]:
    """Counts to try: doubled from one device up to a node, and from a node on; both ends of the range."""
    inner = [1 << power for power in range(node.bit_length()) if 1 << power < node]
    outer = [node << power for power in range((limits.most // node).bit_length())]
    inside = [count for count in (*inner, *outer) if limits.least < count < limits.most]
    return tuple(dict.fromkeys((limits.least, *inside, limits.most)))
