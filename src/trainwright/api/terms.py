"""What a predicted step is priced with: prices, a target, interruptions."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.api.prices import build_prices
from trainwright.api.reliability import build_reliability
from trainwright.api.subject import Subject
from trainwright.api.target import Target, build_target
from trainwright.api.terms_fields import TermsFields
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


def build_terms(request: TermsFields, subject: Subject) -> Priced:
    """The terms that a request describes."""
    prices = build_prices(request, subject.cluster)
    target = build_target(request, subject.graph)
    return Priced(
        terms=Terms(
            interval=subject.interval, tokens=target.tokens,
            dollars_per_device_hour=prices.cluster.device.price_per_hour,
            dollars_per_kwh=prices.dollars_per_kwh, grid_kg_per_kwh=prices.grid_kg_per_kwh,
            memory_spread=subject.memory_spread,
            reliability=build_reliability(request), critical_batch_tokens=target.critical_batch_tokens,
        ),
        cluster=prices.cluster,
        target=target,
        price_note=prices.note,
    )  # fmt: skip
