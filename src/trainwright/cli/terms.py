"""What a predicted step is priced with, read from the options: prices, a target, interruptions."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.cli.interruptions import parse_reliability
from trainwright.cli.money import parse_prices
from trainwright.cli.subject import Subject
from trainwright.cli.target import Target, parse_target
from trainwright.cluster.types import Cluster
from trainwright.report.budget import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The terms, the cluster at their price of an hour, and what to say of them."""

    terms: Terms
    cluster: Cluster
    target: Target
    price_note: str

    def notes(self, batch_tokens: Sequence[int]) -> tuple[str, ...]:
        """What to say, for batches of so many tokens."""
        return (*self.target.notes(batch_tokens), self.price_note)


def parse_terms(options: argparse.Namespace, subject: Subject) -> Priced:
    """The terms that the options describe."""
    prices = parse_prices(options, subject.cluster)
    target = parse_target(options, subject.graph)
    return Priced(
        terms=Terms(
            interval=subject.interval, tokens=target.tokens,
            dollars_per_device_hour=prices.cluster.device.price_per_hour,
            dollars_per_kwh=prices.dollars_per_kwh, grid_kg_per_kwh=prices.grid_kg_per_kwh,
            memory_spread=subject.memory_spread,
            reliability=parse_reliability(options), critical_batch_tokens=target.critical_batch_tokens,
        ),
        cluster=prices.cluster,
        target=target,
        price_note=prices.note,
    )  # fmt: skip
