"""Options on a deadline or a budget, and on how many devices may be had."""

import argparse
from dataclasses import dataclass
from math import inf

from trainwright.cli.refusal import refuse_given
from trainwright.cluster.load import load_cluster
from trainwright.errors import BadInput
from trainwright.units import parse_number, parse_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, in a group."""
    group = parser.add_argument_group(
        "the smallest cluster", "CLUSTER then states the most devices that may be had, like h100:16384"
    )
    group.add_argument("--max-days", metavar="DAYS", help="a deadline, interruptions counted, like 30")
    group.add_argument("--max-dollars", metavar="DOLLARS", help="a budget, like 5e6")
    group.add_argument(
        "--devices-range", metavar="A..B", help="counts to consider, like 64..1024 (default: 1 to all)"
    )


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


def parse_limits(options: argparse.Namespace) -> Limits | None:
    """The limits that the options set, if any."""
    if options.max_days is None and options.max_dollars is None:
        if options.devices_range is not None:
            remedy = "add --max-days or --max-dollars"
            raise BadInput("--devices-range", options.devices_range, "goes with a deadline or budget", remedy)
        return None
    limit = "--max-dollars" if options.max_days is None else "--max-days"
    rule = f"is for one cluster, and {limit} looks for the smallest one"
    refuse_given(options, ("flexible", "pareto"), rule, "plan again for the device count that is found")
    days, dollars = (
        parse_number(text, option, example) if text is not None else inf
        for text, option, example in (
            (options.max_days, "--max-days", "30"),
            (options.max_dollars, "--max-dollars", "5e6"),
        )
    )
    least, most = _range(options.devices_range, load_cluster(options.cluster).count)
    return Limits(max_days=days, max_dollars=dollars, least=least, most=most)


def _range(text: str | None, count: int) -> tuple[int, int]:
    if text is None:
        return 1, count
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
