"""The global batch of a request: a number of sequences, or tokens within a tolerance."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from trainwright.api.fields import Whole, refuse, value_text
from trainwright.api.named_plan import is_zoo
from trainwright.api.subject import Subject
from trainwright.api.subject_fields import BatchFields
from trainwright.errors import BadInput
from trainwright.model.dlrm import is_recommender
from trainwright.plan.strategy import parse_strategy, stack_strategies
from trainwright.search.batch_target import (
    TOLERANCE,
    BatchTarget,
    asked_words,
    batch_words,
    build_target,
    parse_batch_tokens,
    parse_tolerance,
)
from trainwright.search.space import batch_unit
from trainwright.search.usual import MOST_BATCH, usual_batch, usual_batch_tokens
from trainwright.units import parse_whole, render_si

Named = TypeVar("Named")
SAMPLES_PER_DEVICE = 512  # of a recommender
_TRIED = 32  # batches of a target, for a plan of the zoo


def choose_batch_size(stated: Whole | None, subject: Subject) -> tuple[int, str]:
    """Sequences per step, as stated or by model size; and a note on them."""
    seq = subject.seq
    if stated is not None:
        batch, how = parse_whole(stated, "--batch", most=MOST_BATCH), "as asked"
    elif is_recommender(subject.graph):
        batch = SAMPLES_PER_DEVICE * subject.cluster.count
        how = f"{SAMPLES_PER_DEVICE} for each device, see --batch"
    else:
        batch, how = usual_batch(subject.graph, subject.cluster, seq), "by model size, see --batch"
    return batch, batch_note(batch, seq, how)


def build_batch_target(request: BatchFields, subject: Subject) -> BatchTarget | None:
    """The range of batches that `--batch-tokens` asks for; None if it does not."""
    stated = request.batch_tokens
    if stated is None:
        return None
    tokens, tolerance = parse_batch_tokens(stated, "--batch-tokens"), batch_tolerance(request)
    asked = f"asked for {asked_words(value_text(stated), tokens, tolerance)}"
    return build_target(tokens, subject.seq, tolerance, asked, "--batch-tokens")


def usual_target(request: BatchFields, subject: Subject) -> BatchTarget:
    """The range around the tokens that are usual for a model, on however many devices."""
    tokens, tolerance = usual_batch_tokens(subject.graph), batch_tolerance(request)
    asked = (
        f"by model size: {render_si(tokens, 'tokens')} ± {100 * tolerance:g} % for every count, see --batch"
    )
    return build_target(max(tokens, subject.seq), subject.seq, tolerance, asked, "batch by model size")


def batch_tolerance(request: BatchFields) -> float:
    """The tolerance of a target."""
    stated = request.batch_tolerance
    return TOLERANCE if stated is None else parse_tolerance(stated, "--batch-tolerance")


def refuse_tolerance(request: BatchFields) -> None:
    """Raise for a tolerance where the batch is exact."""
    remedy = "leave it out, or state --batch-tokens"
    refuse(request, ("batch_tolerance",), "goes with a batch in tokens or a range of batches", remedy)


def check_own_batch(request: BatchFields, subject: Subject, plan: object, own: int, what: str) -> str:
    """A note on the batch that a plan file has of its own; raises if another one is asked for."""
    target = build_batch_target(request, subject)
    remedy = "leave it out, or change the file"
    if target is None:
        refuse_tolerance(request)
        if request.batch is not None and choose_batch_size(request.batch, subject)[0] != own:
            raise BadInput("--batch", request.batch, f"the plan has {what} = {own}", remedy)
    elif own not in target:
        rule = f"is {target.low} to {target.high} sequences, and the plan has {what} = {own}"
        raise BadInput("--batch-tokens", request.batch_tokens, rule, f"{remedy}, or see --batch-tolerance")
    return batch_note(own, subject.seq, f"of {plan}")


def named_at_batch(
    request: BatchFields, subject: Subject, text: str, build: Callable[[int], Named], replicas: int = 1
) -> tuple[Named, str]:
    """A strategy or a plan of the zoo at the batch asked for, and a note on it.

    Of a target it is the nearest batch that the strategy, done by so many replicas, divides; or the roundest
    that the plan of the zoo can be built for.
    """
    target = build_batch_target(request, subject)
    if target is None:
        refuse_tolerance(request)
        batch, note = choose_batch_size(request.batch, subject)
        return build(batch), note
    errors: list[BadInput] = []
    for batch in _batches_for(request, target, text, subject.cluster.count, replicas):
        try:
            return build(batch), batch_note(batch, subject.seq, target.asked)
        except BadInput as error:
            errors.append(error)
    rule = f"is {target.low} to {target.high} sequences, and none suits the plan: {errors[0]}"
    raise BadInput("--batch-tokens", request.batch_tokens, rule, "state --batch, or see --batch-tolerance")


def _batches_for(
    request: BatchFields, target: BatchTarget, text: str, devices: int, replicas: int
) -> Sequence[int]:
    """The batches of a target to try for a plan, in order."""
    if not text.split() or is_zoo(text.split()):
        return target.roundest(devices, _TRIED)
    unit = replicas * int(batch_unit(stack_strategies([parse_strategy(text)]))[0])
    batch = target.nearest_multiple(unit)
    if batch is None:
        rule = f"is {target.low} to {target.high} sequences, and the plan needs a multiple of {unit}"
        remedy = "state --batch, widen --batch-tolerance, or change dp or mb"
        raise BadInput("--batch-tokens", request.batch_tokens, rule, remedy)
    return (batch,)


def batch_tree(batches: Sequence[int], target: BatchTarget | None) -> dict[str, object]:
    """The batches and what was asked for, as plain values."""
    return {
        "sequences": batches,
        "asked_tokens": target.tokens if target else None,
        "asked_sequences": (target.low, target.high) if target else None,
    }


def batch_note(batch: int, seq: int, how: str) -> str:
    """The batch in words."""
    return f"Global batch: {batch_words(batch, seq)} ({how})"
