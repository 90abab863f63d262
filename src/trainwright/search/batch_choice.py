"""The batch of a target at which tokens take the least time, and a better one near a batch."""

from dataclasses import dataclass, replace
from math import ceil, floor, gcd, inf

from trainwright.errors import BadInput
from trainwright.search.batch_probe import BatchTimes, probe_batches
from trainwright.search.batch_target import BatchTarget, roundness
from trainwright.search.check import check_constraints
from trainwright.search.find import Question

_AS_ASKED = 1.02  # times the best: the batch that was asked for is taken
_ALIKE = 1.01  # times the best: the roundest batch is taken
_NEARBY = 0.125  # share to both sides in which a better batch is looked for


class NoBatch(BadInput):
    """No batch of a target is legal on the devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearbyBatch:
    """A batch near another one, and the least seconds per sequence there, charged if batches are."""

    batch: int
    sequence_s: float


def choose_batch(question: Question, target: BatchTarget, *, multiple: int = 1) -> int:
    """The batch of a target with the least time per token, for the devices and constraints of a question.

    Batches within 1 % of the best count as alike, and the roundest is taken; that which was asked for, if it
    is a whole number of sequences, already within 2 %. A `multiple` restricts batches, if one is within.
    """
    times = _probed(question, target.low, target.high, target.sequences)
    if times is None:
        raise _no_batch(question, target)
    times = times.take(times.legal)
    some = times.take(times.batches % multiple == 0)
    return _roundest(some if len(some.batches) else times, question, target.sequences)


def nearby_batch(question: Question, batch: int) -> NearbyBatch | None:
    """The best batch within an eighth of another; None where that divides over the devices as well as any."""
    devices = question.job.cluster.count
    if gcd(batch, devices) == min(batch, devices):
        return None
    times = _around(question, batch)
    if times is None or times.best_s == inf:
        return None
    found = _roundest(times, question, batch)
    return NearbyBatch(batch=found, sequence_s=float(times.sequence_s[times.batches == found][0]))


def _around(question: Question, sequences: float) -> BatchTimes | None:
    """The times of batches within an eighth of so many sequences."""
    low, high = max(ceil(sequences * (1.0 - _NEARBY)), 1), floor(sequences * (1.0 + _NEARBY))
    return _probed(question, low, max(high, low), sequences)


def _probed(question: Question, low: int, high: int, middle: float) -> BatchTimes | None:
    """The times of batches; None if no strategy is legal at any."""
    try:
        return probe_batches(question, (low, high), middle)
    except BadInput:
        return None


def _roundest(times: BatchTimes, question: Question, sequences: float) -> int:
    """The roundest of the batches that are as good as the best."""
    devices, best_s = question.job.cluster.count, times.best_s
    asked = times.batches == sequences
    if (times.sequence_s[asked] <= _AS_ASKED * best_s).any():
        return int(times.batches[asked][0])
    alike: list[int] = times.batches[times.sequence_s <= _ALIKE * best_s].tolist()
    return min(alike, key=lambda batch: roundness(batch, devices, sequences))


def _no_batch(question: Question, target: BatchTarget) -> NoBatch:
    """Why no batch of a target is legal; raises if that has another reason than the batch."""
    check_constraints(replace(question, batches=question.fixed.get("dp", (1,))))
    devices, times = question.job.cluster.count, _around(question, target.sequences)
    rule = f"no batch of {target.low:,} to {target.high:,} sequences is legal on {devices:,} devices"
    remedy = "change the batch, or relax --fix and --max"
    if times is not None:
        near = min(times.batches[times.legal].tolist(), key=lambda each: abs(each - target.sequences))
        remedy = f"{near:,} sequences would be: see --batch and --batch-tolerance"
    return NoBatch("global batch", target.asked, rule, remedy)
