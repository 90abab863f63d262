"""The batch, or the batches, that a plan is searched at: as stated, or the best of what was asked for."""

from dataclasses import dataclass, replace
from math import inf

from trainwright.api.batch import (
    batch_note,
    batch_tolerance,
    build_batch_target,
    choose_batch_size,
    refuse_tolerance,
    usual_target,
)
from trainwright.api.fields import value_text
from trainwright.api.plan_request import PlanRequest
from trainwright.api.subject import Subject
from trainwright.errors import BadInput
from trainwright.program.meetings import island_counts
from trainwright.search.batch_choice import choose_batch
from trainwright.search.batch_target import BatchTarget, build_target
from trainwright.search.find import Question
from trainwright.search.usual import MOST_BATCH
from trainwright.units import parse_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBatches:
    """The batches of a search, with the target that they were chosen for, if any; and what to say of them."""

    batches: tuple[int, ...]
    note: str
    target: BatchTarget | None = None


def choose_batches(
    request: PlanRequest, subject: Subject, question: Question, *, is_sized: bool
) -> ChosenBatches:
    """The batches that a request asks for; `is_sized` if counts of devices are compared."""
    if request.batch_range:
        return _of_range(request, subject, question)
    target = build_batch_target(request, subject)
    if target is None and is_sized and request.batch is None:
        target = usual_target(request, subject)
    if target is not None:
        batch = choose_batch(question, target, multiple=_islands(request, subject, target))
        note = batch_note(batch, subject.seq, target.asked)
        return ChosenBatches(batches=(batch,), note=note, target=target)
    refuse_tolerance(request)
    batch, note = choose_batch_size(request.batch, subject)
    return ChosenBatches(batches=(batch,), note=note)


def _islands(request: PlanRequest, subject: Subject, target: BatchTarget) -> int:
    """The islands that a batch must divide over: as many as are stated, or the most that it can."""
    if request.algorithm is None:
        return 1
    if request.islands is not None:
        return parse_whole(request.islands, "--islands", most=MOST_BATCH)
    counts = [each for each in island_counts(subject.cluster) if target.nearest_multiple(each)]
    return max(counts, default=1)


def _of_range(request: PlanRequest, subject: Subject, question: Question) -> ChosenBatches:
    """About A, 2A, 4A ... B sequences, each the best within the tolerance and the range."""
    low, high = _ends(value_text(request.batch_range, ":"))
    doubled = [low << power for power in range((high // low).bit_length()) if low << power <= high]
    targets = [_around(request, subject, batch, low, high) for batch in dict.fromkeys([*doubled, high])]
    batches = tuple(dict.fromkeys(choose_batch(question, each) for each in targets))
    listed = ", ".join(map(str, batches))
    charged = question.critical_batch_tokens < inf
    how = "by time to the same loss, see --critical-batch" if charged else "by time per token"
    return ChosenBatches(
        batches=batches,
        note=f"Global batch: {listed} sequences of {subject.seq} tokens, compared {how}",
    )


def _ends(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not colon:
        raise BadInput("--batch-range", text, "has no end", "write it like 512:4096")
    low, high = (parse_whole(each, "--batch-range", most=MOST_BATCH) for each in (first, last))
    if low > high:
        raise BadInput("--batch-range", text, "starts above its end", "write it like 512:4096")
    return low, high


def _around(request: PlanRequest, subject: Subject, batch: int, low: int, high: int) -> BatchTarget:
    """The range around a batch that is within two ends."""
    tokens, asked = float(batch * subject.seq), f"about {batch} sequences"
    target = build_target(tokens, subject.seq, batch_tolerance(request), asked, "--batch-range")
    return replace(target, low=max(target.low, low), high=min(target.high, high))
