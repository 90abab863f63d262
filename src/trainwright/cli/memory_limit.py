"""How much of a device's memory plans may be predicted to fill, read from the options."""

import argparse

from trainwright.cost.memory_risk import DEFAULT_RISK, MemorySpread, parse_percent, parse_risk
from trainwright.errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two ways to state it."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--oom-risk", metavar="P",
        help="rank only plans whose probability of running out of memory is at most this (default: 5%%)",
    )  # fmt: skip
    group.add_argument(
        "--headroom", metavar="SHARE", help="rank only plans that leave this share of usable memory free"
    )


def parse_filled_share(options: argparse.Namespace, spread: MemorySpread) -> tuple[float, str]:
    """The share of usable memory that a plan may fill, and a note on it."""
    if options.headroom is not None:
        free = parse_percent(options.headroom, "--headroom")
        if not 0.0 <= free < 1.0:
            raise BadInput("--headroom", options.headroom, "is not a share below 100%", "write it like 8%")
        return 1.0 - free, f"Plans leave {free:.1%} of usable memory free (--headroom)"
    risk = DEFAULT_RISK if options.oom_risk is None else parse_risk(options.oom_risk, "--oom-risk")
    share = spread.filled_share(risk)
    basis = f"{spread.rows:,} measured peaks and outcomes" if spread.rows else "no measured peaks of its own"
    return share, f"OOM risk at most {risk:.1%}: plans fill at most {share:.1%} of usable memory ({basis})"
