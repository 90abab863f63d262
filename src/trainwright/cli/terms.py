"""What a predicted step is priced with, read from the options: prices, a target, interruptions."""

import argparse
from dataclasses import dataclass

from trainwright.cli.interruptions import parse_reliability
from trainwright.cli.money import parse_prices
from trainwright.cli.subject import Subject
from trainwright.cli.target import parse_target
from trainwright.cluster.types import Cluster
from trainwright.report.budget import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """The terms, the cluster at their price of an hour, and what to say of them."""

    terms: Terms
    cluster: Cluster
    notes: tuple[str, ...]


def parse_terms(options: argparse.Namespace, subject: Subject, batch_tokens: tuple[int, ...]) -> Priced:
    """The terms that the options describe, for batches of so many tokens."""
    prices = parse_prices(options, subject.cluster)
    target = parse_target(options, subject.graph, batch_tokens)
    return Priced(
        terms=Terms(
            interval=subject.interval, tokens=target.tokens,
            dollars_per_device_hour=prices.cluster.device.price_per_hour,
            dollars_per_kwh=prices.dollars_per_kwh, grid_kg_per_kwh=prices.grid_kg_per_kwh,
            reliability=parse_reliability(options), critical_batch_tokens=target.critical_batch_tokens,
        ),
        cluster=prices.cluster,
        notes=(*target.notes, prices.note),
    )  # fmt: skip
