"""What came of simulating a plan that a user asked about."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.cli.subject import Subject
from trainwright.cost.anchor import Anchoring
from trainwright.report.account import Account
from trainwright.simulate.islands import SimulatedApart
from trainwright.simulate.timeline import Timeline
from trainwright.simulate.whole import Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was asked about, what to say of it first, the simulated step and its account.

    `batch` has the sequences of a step and what was asked for. Of a plan of islands the step is that of one,
    the account that of all, and `apart` has their round.
    """

    subject: Subject
    notes: tuple[str, ...]
    simulated: Simulated
    account: Account
    batch: Mapping[str, object]
    apart: SimulatedApart | None = None
    anchor: Anchoring | None = None  # what runs of the user say of it

    @property
    def timeline(self) -> Timeline:
        """The step, task by task; of islands, the round with its last step so."""
        return self.apart.round.timeline if self.apart else self.simulated.timeline
