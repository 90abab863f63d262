"""What a user asks of a plan, read from the options."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from trainwright.cli.knobs import LIMITED
from trainwright.cli.subject import (
    Subject,
    parse_batch,
    parse_subject,
)
from trainwright.cli.terms import parse_terms
from trainwright.cluster.types import Device
from trainwright.cost.constants import AXES, Stack
from trainwright.errors import BadInput
from trainwright.estimate.types import Job
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.report.summary import Terms
from trainwright.search.find import Question
from trainwright.search.rank import objective
from trainwright.search.space import knob_name, knob_value
from trainwright.search.usual import MOST_BATCH, able_knobs, check_precision
from trainwright.units import parse_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question for the search, what its answer is priced with, and what was assumed on the way."""

    question: Question
    terms: Terms
    notes: tuple[str, ...]
    pareto: bool


def parse_request(options: argparse.Namespace, devices: int | None = None) -> Request:
    """The request that the options describe; on so many devices, if that is not up to the cluster."""
    subject = parse_subject(options, devices)
    stack = subject.stack
    batches, batch_note = _batches(options, subject)
    priced = parse_terms(options, subject, tuple(batch * subject.seq for batch in batches))
    objective(options.objective)
    job = Job(
        graph=subject.graph, cluster=priced.cluster, stack=stack, efficiency=subject.efficiency,
        seq=subject.seq, global_batch=batches[0],
    )  # fmt: skip
    return Request(
        question=Question(
            mappings=True,
            job=job, batches=batches,
            fixed=_fixed(options, priced.cluster.device, stack), most=_most(options, stack),
            objective=options.objective, top=parse_whole(options.top, "--top"),
            critical_batch_tokens=priced.terms.critical_batch_tokens,
            dollars_per_kwh=priced.terms.dollars_per_kwh,
        ),
        terms=priced.terms,
        notes=(subject.title, batch_note, *priced.notes, *subject.basis, *_lacks(options, stack)),
        pareto=options.pareto,
    )  # fmt: skip


def _batches(options: argparse.Namespace, subject: Subject) -> tuple[tuple[int, ...], str]:
    if not options.batch_range:
        batch, note = parse_batch(options, subject)
        return (batch,), note
    first, colon, last = options.batch_range.partition(":")
    if not colon:
        raise BadInput("--batch-range", options.batch_range, "has no end", "write it like 512:4096")
    low, high = (parse_whole(each, "--batch-range", most=MOST_BATCH) for each in (first, last))
    if low > high:
        raise BadInput("--batch-range", options.batch_range, "starts above its end", "write it like 512:4096")
    doubled = [low << power for power in range((high // low).bit_length()) if low << power <= high]
    batches = tuple(dict.fromkeys([*doubled, high]))
    listed = ", ".join(map(str, batches))
    charged = (options.target_loss or options.critical_batch) and options.critical_batch != "none"
    how = "by what their tokens are worth" if charged else "per token"
    return batches, f"Global batch: {listed} sequences of {subject.seq} tokens, compared {how}"


def _lacks(options: argparse.Namespace, stack: Stack) -> tuple[str, ...]:
    """A note on what the stack cannot run and is therefore not searched, unless the user fixed that knob."""
    chosen = {text.partition("=")[0] for text in options.fix}
    missing = {
        "schedule": [name for name in SCHEDULES if name not in stack.schedules],
        "offload": [name for name in OFFLOADS if name not in stack.offloads],
        "zero": [str(stage) for stage in range(4) if stage not in stack.zeros],
    } | {axis: ["above 1"] for axis in AXES if axis not in stack.axes}
    words = [f"{knob} {', '.join(names)}" for knob, names in missing.items() if names and knob not in chosen]
    if not words:
        return ()
    return (f"{stack.name} lacks {'; '.join(words)}: not searched (see --fix, --stack generic).",)


def _fixed(options: argparse.Namespace, device: Device, stack: Stack) -> dict[str, tuple[int, ...]]:
    """Knobs that are fixed: by the user, or by what the stack can run."""
    precision = options.precision or device.usual_precision
    check_precision(precision, device)
    stated = _stated(options.fix)
    if options.precision and "precision" in stated:
        rule = "is also fixed by --fix precision"
        raise BadInput("--precision", options.precision, rule, "state the precision once")
    fixed = {**able_knobs(stack), "precision": (PRECISIONS.index(precision),), **stated}
    for index in fixed["precision"]:
        check_precision(PRECISIONS[index], device)
    return fixed


def _stated(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The values of each knob that `--fix` names."""
    stated: dict[str, tuple[int, ...]] = {}
    for text in texts:
        knob, equals, value = text.partition("=")
        if not equals:
            raise BadInput("--fix", text, "has no value", "write it like pp=4")
        name = knob_name(knob)
        if name in stated:
            rule = f"fixes {name} a second time"
            raise BadInput("--fix", text, rule, f"list the values in one option, like {knob}=1,2")
        stated[name] = tuple(dict.fromkeys(knob_value(knob, each) for each in value.split(",")))
    return stated


def _most(options: argparse.Namespace, stack: Stack) -> dict[str, int]:
    stated = {knob: getattr(options, f"max_{knob}") for knob in LIMITED}
    return {"vpp": stack.most_vpp} | {
        knob_name(knob): parse_whole(text, f"--max-{knob}") for knob, text in stated.items() if text
    }
