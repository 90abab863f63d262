"""Whether it is the batch that limits a plan: another one is notably faster per token."""

from dataclasses import dataclass, replace

from trainwright.economics.batch import batch_charge
from trainwright.errors import BadInput
from trainwright.search.batch_choice import nearby_batch
from trainwright.search.batch_probe import probe_batches
from trainwright.search.find import Question, find_plans
from trainwright.search.rank import Candidates

_NOTABLE = 1.03  # times as fast: what a nearby batch must be to be named
_WORTH_DOUBLING = 1.1  # times as fast: what twice the batch must be


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """A batch, why it limits, and one at which the best plan trains tokens `faster` times as fast.

    Where batches are charged, tokens count by what they are worth.
    """

    batch: int
    why: str
    better: int
    faster: float

    def __str__(self) -> str:
        change = self.better / self.batch - 1.0
        less = "twice" if change == 1.0 else f"{abs(change):.1%} {'more' if change > 0 else 'fewer'}"
        return (
            f"Global batch: {self.batch} sequences {self.why}; at {self.better} ({less}) the best plan would "
            f"train tokens {self.faster:.2f} times as fast."
        )


def batch_limit(question: Question, best: Candidates) -> BatchLimit | None:
    """The batch as what limits the best plan of a question, if another one is better.

    A batch that divides badly over the devices is compared with the best within an eighth, which is searched;
    one that is smaller than their number with twice the batch.
    """
    if question.objective == "memory" or len(question.batches) > 1:
        return None
    own_s = _sequence_s(question, best)
    return _uneven(question, own_s) or _small(question, own_s)


def _uneven(question: Question, own_s: float) -> BatchLimit | None:
    """A batch that divides badly."""
    (batch,), devices = question.batches, question.job.cluster.count
    near = nearby_batch(question, batch)
    if near is None or near.sequence_s * _NOTABLE > own_s:
        return None
    there = find_plans(replace(question, batches=(near.batch,), top=1, families=0, mappings=False))
    faster = own_s / _sequence_s(question, there.best) if len(there.best) else 0.0
    if faster < _NOTABLE:
        return None
    why = f"divide badly over {devices} devices"
    return BatchLimit(batch=batch, why=why, better=near.batch, faster=faster)


def _small(question: Question, own_s: float) -> BatchLimit | None:
    """A batch that is too small for the devices: each of them has less than a sequence."""
    (batch,), devices = question.batches, question.job.cluster.count
    if batch >= devices:
        return None
    try:
        times = probe_batches(question, (2 * batch, 2 * batch), 2.0 * batch)
    except BadInput:  # no strategy is legal there
        return None
    faster = own_s / times.best_s
    if faster < _WORTH_DOUBLING:
        return None
    return BatchLimit(batch=batch, why=f"are few for {devices} devices", better=2 * batch, faster=faster)


def _sequence_s(question: Question, best: Candidates) -> float:
    """Seconds per sequence of the best, charged if batches are."""
    batch = int(best.global_batch[0])
    charge = batch_charge(batch * question.job.seq, question.critical_batch_tokens)
    return float(best.step_s[0]) / batch * charge
