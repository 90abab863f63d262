"""The global batch, read from the options: a number of sequences, or tokens within a tolerance."""

import argparse
from collections.abc import Callable, Sequence
from typing import TypeVar

from trainwright.cli.named_plan import is_zoo
from trainwright.cli.refusal import refuse_given
from trainwright.cli.subject import Subject
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


def parse_batch(options: argparse.Namespace, subject: Subject) -> tuple[int, str]:
    """Sequences per step, as `--batch` says or by model size; and a note on them."""
    seq = subject.seq
    if options.batch:
        batch, how = parse_whole(options.batch, "--batch", most=MOST_BATCH), "as asked"
    elif is_recommender(subject.graph):
        batch = SAMPLES_PER_DEVICE * subject.cluster.count
        how = f"{SAMPLES_PER_DEVICE} for each device, see --batch"
    else:
        batch, how = usual_batch(subject.graph, subject.cluster, seq), "by model size, see --batch"
    return batch, batch_note(batch, seq, how)


def parse_batch_target(options: argparse.Namespace, subject: Subject) -> BatchTarget | None:
    """The range of batches that `--batch-tokens` asks for; None if it does not."""
    text = options.batch_tokens
    if not text:
        return None
    tokens, tolerance = parse_batch_tokens(text, "--batch-tokens"), batch_tolerance(options)
    asked = f"asked for {asked_words(text, tokens, tolerance)}"
    return build_target(tokens, subject.seq, tolerance, asked, "--batch-tokens")


def usual_target(options: argparse.Namespace, subject: Subject) -> BatchTarget:
    """The range around the tokens that are usual for a model, on however many devices."""
    tokens, tolerance = usual_batch_tokens(subject.graph), batch_tolerance(options)
    asked = (
        f"by model size: {render_si(tokens, 'tokens')} ± {100 * tolerance:g} % for every count, see --batch"
    )
    return build_target(max(tokens, subject.seq), subject.seq, tolerance, asked, "batch by model size")


def batch_tolerance(options: argparse.Namespace) -> float:
    """The tolerance of a target."""
    text = options.batch_tolerance
    return parse_tolerance(text, "--batch-tolerance") if text else TOLERANCE


def refuse_tolerance(options: argparse.Namespace) -> None:
    """Raise for a tolerance where the batch is exact."""
    remedy = "leave it out, or state --batch-tokens"
    refuse_given(options, ("batch_tolerance",), "goes with a batch in tokens or a range of batches", remedy)


def check_own_batch(options: argparse.Namespace, subject: Subject, own: int, what: str) -> str:
    """A note on the batch that a plan file has of its own; raises if another one is asked for."""
    target = parse_batch_target(options, subject)
    remedy = "leave it out, or change the file"
    if target is None:
        refuse_tolerance(options)
        if options.batch and parse_batch(options, subject)[0] != own:
            raise BadInput("--batch", options.batch, f"the plan has {what} = {own}", remedy)
    elif own not in target:
        rule = f"is {target.low} to {target.high} sequences, and the plan has {what} = {own}"
        raise BadInput("--batch-tokens", options.batch_tokens, rule, f"{remedy}, or see --batch-tolerance")
    return batch_note(own, subject.seq, f"of {' '.join(options.plan)}")


def named_at_batch(
    options: argparse.Namespace, subject: Subject, text: str, build: Callable[[int], Named], replicas: int = 1
) -> tuple[Named, str]:
    """A strategy or a plan of the zoo at the batch asked for, and a note on it.

    Of a target it is the nearest batch that the strategy, done by so many replicas, divides; or the roundest
    that the plan of the zoo can be built for.
    """
    target = parse_batch_target(options, subject)
    if target is None:
        refuse_tolerance(options)
        batch, note = parse_batch(options, subject)
        return build(batch), note
    errors: list[BadInput] = []
    for batch in _batches_for(options, target, text, subject.cluster.count, replicas):
        try:
            return build(batch), batch_note(batch, subject.seq, target.asked)
        except BadInput as error:
            errors.append(error)
    rule = f"is {target.low} to {target.high} sequences, and none suits the plan: {errors[0]}"
    raise BadInput("--batch-tokens", options.batch_tokens, rule, "state --batch, or see --batch-tolerance")


def _batches_for(
    options: argparse.Namespace, target: BatchTarget, text: str, devices: int, replicas: int
) -> Sequence[int]:
    """The batches of a target to try for a plan, in order."""
    if not text.split() or is_zoo(text.split()):
        return target.roundest(devices, _TRIED)
    unit = replicas * int(batch_unit(stack_strategies([parse_strategy(text)]))[0])
    batch = target.nearest_multiple(unit)
    if batch is None:
        rule = f"is {target.low} to {target.high} sequences, and the plan needs a multiple of {unit}"
        remedy = "state --batch, widen --batch-tolerance, or change dp or mb"
        raise BadInput("--batch-tokens", options.batch_tokens, rule, remedy)
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
