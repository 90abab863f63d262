"""Whether it is the batch that limits a plan: a search at a nearby batch is notably faster."""

from dataclasses import dataclass, replace

from trainwright.economics.batch import batch_charge
from trainwright.search.batch_choice import nearby_batch
from trainwright.search.find import Question, find_plans
from trainwright.search.rank import Candidates

_NOTABLE = 1.03  # times as fast: what another batch must be to be named


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """A batch, and one near it at which the best plan trains tokens `faster` times as fast.

    Where batches are charged, tokens count by what they are worth.
    """

    batch: int
    better: int
    faster: float
    devices: int

    def __str__(self) -> str:
        change = self.better / self.batch - 1.0
        less = f"{abs(change):.1%} {'more' if change > 0 else 'fewer'}"
        return (
            f"Global batch: {self.batch} sequences divide badly over {self.devices} devices; at "
            f"{self.better} ({less}) the best plan would train tokens {self.faster:.2f} times as fast."
        )


def batch_limit(question: Question, best: Candidates) -> BatchLimit | None:
    """The batch as what limits the best plan of a question, if a search at a nearby one is better."""
    if question.objective == "memory" or len(question.batches) > 1:
        return None
    (batch,) = question.batches
    near, own_s = nearby_batch(question, batch), _sequence_s(question, best)
    if near is None or near.sequence_s * _NOTABLE > own_s:
        return None
    there = find_plans(replace(question, batches=(near.batch,), top=1, families=0, mappings=False))
    faster = own_s / _sequence_s(question, there.best) if len(there.best) else 0.0
    if faster < _NOTABLE:
        return None
    return BatchLimit(batch=batch, better=near.batch, faster=faster, devices=question.job.cluster.count)


def _sequence_s(question: Question, best: Candidates) -> float:
    """Seconds per sequence of the best, charged if batches are."""
    batch = int(best.global_batch[0])
    charge = batch_charge(batch * question.job.seq, question.critical_batch_tokens)
    return float(best.step_s[0]) / batch * charge
