"""How much of a device's memory plans may be predicted to fill, read from the options."""

import argparse

from trainwright.cost.memory_risk import DEFAULT_RISK, LEAST_RISK, MOST_RISK, MemorySpread
from trainwright.errors import BadInput
from trainwright.units import parse_number


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


def _parse_percent(text: str, thing: str) -> float:
    """A share that is written as a percentage or as a number below 1."""
    number = text.strip().removesuffix("%")
    value = 0.0 if number.strip() in ("0", "0.0") else parse_number(number, thing, "5%")
    return value / 100.0 if text.strip().endswith("%") else value


def parse_filled_share(options: argparse.Namespace, spread: MemorySpread) -> tuple[float, str]:
    """The share of usable memory that a plan may fill, and a note on it."""
    if options.headroom is not None:
        free = _parse_percent(options.headroom, "--headroom")
        if not 0.0 <= free < 1.0:
            raise BadInput("--headroom", options.headroom, "is not a share below 100%", "write it like 8%")
        return 1.0 - free, f"Plans leave {free:.1%} of usable memory free (--headroom)"
    risk = DEFAULT_RISK if options.oom_risk is None else _parse_percent(options.oom_risk, "--oom-risk")
    if not LEAST_RISK <= risk <= MOST_RISK:
        raise BadInput(
            "--oom-risk", options.oom_risk, f"is not between {LEAST_RISK:.1%} and {MOST_RISK:.0%}",
            "write it like 5%",
        )  # fmt: skip
    share = spread.filled_share(risk)
    basis = f"{spread.rows:,} measured peaks and outcomes" if spread.rows else "no measured peaks of its own"
    return share, f"OOM risk at most {risk:.1%}: plans fill at most {share:.1%} of usable memory ({basis})"
