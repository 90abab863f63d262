"""What came of simulating a plan that a user asked about."""

from dataclasses import dataclass

from trainwright.cli.subject import Subject
from trainwright.report.account import Account
from trainwright.simulate.whole import Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was asked about, what to say of it first, the simulated step and its account."""

    subject: Subject
    notes: tuple[str, ...]
    simulated: Simulated
    account: Account
