"""What a user asks of a plan, read from the options."""

import argparse
from dataclasses import dataclass, replace

from trainwright.cli.knobs import LIMITED
from trainwright.cli.subject import (
    MOST_BATCH,
    Subject,
    check_precision,
    default_precision,
    parse_batch,
    parse_subject,
)
from trainwright.cluster.types import Cluster, Device
from trainwright.cost.constants import AXES, Stack
from trainwright.errors import BadInput
from trainwright.estimate.types import Job
from trainwright.model.graph import Graph, parameters
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.report.summary import Terms
from trainwright.search.find import Question
from trainwright.search.rank import objective
from trainwright.search.space import knob_name, knob_value
from trainwright.units import parse_quantity, parse_whole, render_si

_TOKENS_PER_PARAMETER = 20.0  # Hoffmann et al. 2022


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question for the search, what its answer is priced with, and what was assumed on the way."""

    question: Question
    terms: Terms
    notes: tuple[str, ...]
    pareto: bool


def parse_request(options: argparse.Namespace) -> Request:
    """The request that the options describe."""
    subject = parse_subject(options)
    cluster, stack = _priced(subject.cluster, options.price), subject.stack
    batches, batch_note = _batches(options, subject)
    tokens, token_note = _tokens(options.tokens, subject.graph)
    objective(options.objective)
    job = Job(
        graph=subject.graph, cluster=cluster, stack=stack, efficiency=subject.efficiency, seq=subject.seq,
        global_batch=batches[0],
    )  # fmt: skip
    return Request(
        question=Question(
            job=job, batches=batches,
            fixed=_fixed(options, cluster.device, stack), most=_most(options, stack),
            objective=options.objective, top=parse_whole(options.top, "--top"),
        ),
        terms=Terms(
            interval=subject.interval, tokens=tokens, dollars_per_device_hour=cluster.device.price_per_hour
        ),
        notes=(subject.title, batch_note, token_note, *subject.basis, *_lacks(options, stack)),
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
    return batches, f"Global batch: {listed} sequences of {subject.seq} tokens, compared per token"


def _tokens(text: str | None, graph: Graph) -> tuple[float, str]:
    if text:
        tokens = parse_quantity(text, "tokens", "--tokens")
        if tokens == 0:
            raise BadInput("--tokens", text, "is zero", 'write it like "15T"')
        return tokens, f"Token budget: {render_si(tokens, 'tokens')}"
    tokens = _TOKENS_PER_PARAMETER * parameters(graph)
    return tokens, f"Token budget: {render_si(tokens, 'tokens')} (20 per parameter, see --tokens)"


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
    precision = options.precision or default_precision(device)
    check_precision(precision, device)
    fixed: dict[str, tuple[int, ...]] = {
        "precision": (PRECISIONS.index(precision),),
        "schedule": tuple(SCHEDULES.index(name) for name in stack.schedules),
        "offload": tuple(OFFLOADS.index(name) for name in stack.offloads),
        "zero": stack.zeros,
    } | {axis: (1,) for axis in AXES if axis not in stack.axes}
    for text in options.fix:
        knob, equals, value = text.partition("=")
        if not equals:
            raise BadInput("--fix", text, "has no value", "write it like pp=4")
        fixed[knob_name(knob)] = tuple(dict.fromkeys(knob_value(knob, each) for each in value.split(",")))
    for index in fixed["precision"]:
        check_precision(PRECISIONS[index], device)
    return fixed


def _most(options: argparse.Namespace, stack: Stack) -> dict[str, int]:
    stated = {knob: getattr(options, f"max_{knob}") for knob in LIMITED}
    return {"vpp": stack.most_vpp} | {
        knob_name(knob): parse_whole(text, f"--max-{knob}") for knob, text in stated.items() if text
    }


def _priced(cluster: Cluster, price: str | None) -> Cluster:
    if not price:
        return cluster
    dollars = parse_quantity(price, "$/h", "--price")
    return replace(cluster, device=replace(cluster.device, price_per_hour=dollars))
