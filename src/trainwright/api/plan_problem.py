"""What a request for plans asks of the search, and what its answer is priced with."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.api.anchoring import anchor_subject
from trainwright.api.chosen_batch import ChosenBatches, choose_batches
from trainwright.api.fields import pair_texts
from trainwright.api.memory_limit import filled_share
from trainwright.api.plan_request import BOUNDED_KNOBS, PlanRequest
from trainwright.api.subject import Subject, build_subject
from trainwright.api.terms import Priced, build_terms
from trainwright.cluster.types import Device
from trainwright.cost.anchor import Anchoring
from trainwright.cost.constants import Stack
from trainwright.errors import BadInput
from trainwright.plan.strategy import OFFLOADS, PRECISIONS, SCHEDULES
from trainwright.report.summary import Terms
from trainwright.search.find import Question
from trainwright.search.rank import objective
from trainwright.search.space import knob_name, knob_value
from trainwright.search.usual import able_knobs, check_able, check_precision
from trainwright.stack.capability import AXES
from trainwright.units import parse_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class UnbatchedProblem:
    """A question whose batch is still to be chosen, its subject, and what its answer is priced with."""

    subject: Subject
    priced: Priced
    question: Question
    memory_note: str  # on the share of memory that plans may fill
    anchor: Anchoring | None  # what runs of the user say of it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanProblem:
    """A question for the search, what its answer is priced with, and what was assumed on the way."""

    question: Question
    terms: Terms
    notes: tuple[str, ...]
    pareto: bool
    batch: ChosenBatches
    anchor: Anchoring | None = None


def build_problem(request: PlanRequest, devices: int | None = None) -> PlanProblem:
    """What a request asks of the search.

    On so many devices, if that is not up to the cluster: then the batch is the same for every count, within
    the tolerance.
    """
    asked = build_unbatched(request, devices)
    subject, question = asked.subject, asked.question
    chosen = choose_batches(request, subject, question, is_sized=devices is not None)
    first, notes = chosen.batches[0], asked.priced.notes([batch * subject.seq for batch in chosen.batches])
    return PlanProblem(
        question=replace(question, job=replace(question.job, global_batch=first), batches=chosen.batches),
        terms=asked.priced.terms,
        notes=(
            subject.title, chosen.note, *notes, asked.memory_note, *subject.basis,
            *_lacks(subject.stack),
        ),
        pareto=request.pareto,
        batch=chosen,
        anchor=asked.anchor,
    )  # fmt: skip


def build_unbatched(request: PlanRequest, devices: int | None = None) -> UnbatchedProblem:
    """What a request asks but for the batch; on so many devices, if that is not up to the cluster."""
    subject = build_subject(request, devices)
    fixed = _fixed(request, subject.cluster.device, subject.stack)
    precisions = [PRECISIONS[index] for index in fixed["precision"]]
    subject, anchor = anchor_subject(request, subject, precisions)
    stack, priced = subject.stack, build_terms(request, subject)
    sought = request.objective or "time"
    objective(sought)
    share, memory_note = filled_share(request, subject.memory_spread)
    top = parse_whole(request.top, "--top")
    job = replace(subject.job(1), cluster=priced.cluster)
    question = Question(
        mappings=True, filled_share=share,
        job=job, batches=(1,),
        fixed=fixed, most=_most(request, stack),
        objective=sought, top=top, families=0 if request.all_variants else top,
        critical_batch_tokens=priced.terms.critical_batch_tokens,
        dollars_per_kwh=priced.terms.dollars_per_kwh,
    )  # fmt: skip
    return UnbatchedProblem(
        subject=subject, priced=priced, question=question, memory_note=memory_note, anchor=anchor
    )


def _lacks(stack: Stack) -> tuple[str, ...]:
    """A note on what the stack cannot run and is therefore not searched."""
    able = stack.capability
    missing = {
        "schedule": [name for name in SCHEDULES if name not in able.schedules],
        "offload": [name for name in OFFLOADS if name not in able.offloads],
        "zero": [str(stage) for stage in range(4) if stage not in able.zeros],
    } | {axis: ["above 1"] for axis in AXES if axis not in able.axes}
    words = [f"{knob} {', '.join(names)}" for knob, names in missing.items() if names]
    if not words:
        return ()
    return (f"{able.title} lacks {'; '.join(words)}: not searched (see --stack generic).",)


def _fixed(request: PlanRequest, device: Device, stack: Stack) -> dict[str, tuple[int, ...]]:
    """Knobs that are fixed: by the user, or by what the stack can run."""
    precision = request.precision or device.usual_precision
    check_precision(precision, device)
    stated = _stated(pair_texts(request.fix))
    if request.precision and "precision" in stated:
        rule = "is also fixed by --fix precision"
        raise BadInput("--precision", request.precision, rule, "state the precision once")
    fixed = {**able_knobs(stack), "precision": (PRECISIONS.index(precision),), **stated}
    check_able(stack, fixed)
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


def _most(request: PlanRequest, stack: Stack) -> dict[str, int]:
    stated = {knob: getattr(request, f"max_{knob}") for knob in BOUNDED_KNOBS}
    return {"vpp": stack.capability.most_vpp} | {
        knob_name(knob): parse_whole(value, f"--max-{knob}")
        for knob, value in stated.items()
        if value is not None
    }
