"""The simulation of a plan of islands: a round, with its last step task by task."""

from dataclasses import replace
from pathlib import Path

from trainwright.api.anchoring import anchor_subject
from trainwright.api.batch import batch_tree, build_batch_target, check_own_batch, named_at_batch
from trainwright.api.named_plan import check_rate, is_file, load_plan, parse_named
from trainwright.api.requests import SimulateRequest
from trainwright.api.simulation import Simulation
from trainwright.api.subject import Subject
from trainwright.api.terms import build_terms
from trainwright.errors import BadInput, TrainwrightError
from trainwright.estimate.types import Job
from trainwright.plan.islands import (
    is_apart,
    island_plan,
    islands_of,
    parse_island_algorithm,
    set_apart,
)
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import parse_strategy
from trainwright.program.check import check
from trainwright.program.meetings import build_apartness, island_cluster, island_counts, island_graph
from trainwright.report.account import Predicted, predict
from trainwright.report.island_account import account_apart
from trainwright.simulate.islands import SimulatedApart, simulate_apart
from trainwright.units import parse_whole

_MOST_ISLANDS = 65_536


def is_of_islands(request: SimulateRequest) -> bool:
    """Whether a plan of islands is asked about: a file that has them, or any plan with an algorithm."""
    text = str(request.plan)
    if request.algorithm is not None or request.islands is not None:
        return True
    return is_file(text) and is_apart(load_plan(Path(text)))


def simulate_low_communication(request: SimulateRequest, subject: Subject) -> Simulation:
    """The simulated round of the plan of islands that a request names."""
    plan, note = _parse_plan(request, subject)
    check_rate(plan, subject)
    subject, anchor = anchor_subject(request, subject, (plan.precision,))
    batch = plan.batch * plan.microbatches * islands_of(plan)
    priced = build_terms(request, subject)
    found = simulate_apart(subject.setting(plan.precision), plan)
    check(found.step.program)
    account = account_apart(found, priced.terms, island=_closed_form(found), free=request.free)
    notes = (subject.title, note, *priced.notes((batch * subject.seq,)), *subject.basis)
    return Simulation(
        request=request, subject=subject, plan=plan, notes=notes, simulated=found.step, account=account,
        apart=found, batch=batch_tree((batch,), build_batch_target(request, subject)), anchor=anchor,
    )  # fmt: skip


def _parse_plan(request: SimulateRequest, subject: Subject) -> tuple[Plan, str]:
    """The plan of all islands, and what to say of its batch."""
    text = str(request.plan)
    if not is_file(text):
        return _of_island(request, subject, text)
    if request.islands is not None:
        raise BadInput("--islands", request.islands, "a plan file has its own", "leave it out")
    plan = load_plan(Path(text), request.algorithm)
    if not is_apart(plan):
        rule = "is of no islands, and --algorithm goes with a strategy or a plan of the zoo"
        raise BadInput("plan", text, rule, "write apart and synchronise into it, or leave out --algorithm")
    if request.algorithm and not text.endswith(".json"):
        raise BadInput("--algorithm", request.algorithm, "the plan file has its own", "leave it out")
    own = plan.batch * plan.microbatches * islands_of(plan)
    return plan, check_own_batch(request, subject, text, own, "islands x batch x microbatches")


def _of_island(request: SimulateRequest, subject: Subject, text: str) -> tuple[Plan, str]:
    """A strategy or a plan of the zoo for one island, done by all of them; and what to say of its batch."""
    if request.algorithm is None:
        raise BadInput("--islands", request.islands, "needs an algorithm", 'state --algorithm "diloco"')
    algorithm = parse_island_algorithm(request.algorithm)
    if request.islands is not None:
        islands = parse_whole(request.islands, "--islands", most=_MOST_ISLANDS)
    else:
        islands = next(iter(island_counts(subject.cluster)), 1)
    apart = build_apartness(subject.graph, subject.seq, algorithm, islands)
    island = replace(
        subject, graph=island_graph(subject.graph, apart), cluster=island_cluster(subject.cluster, islands)
    )

    def named(batch: int) -> Plan:
        if batch % islands:
            rule = f"does not divide over {islands} islands"
            raise BadInput("global batch", batch, rule, f"use a multiple of {islands}, see --batch")
        return _inner_plan(request, text, island, batch // islands, islands)

    inner, note = named_at_batch(request, subject, text, named, replicas=islands)
    return set_apart(inner, algorithm, islands), note


def _inner_plan(request: SimulateRequest, text: str, island: Subject, batch: int, islands: int) -> Plan:
    """The plan of one island, for its part of the batch."""
    try:
        inner = parse_named(text, island, batch).plan
    except BadInput as error:
        rule = (
            f"makes {islands} islands of {island.cluster.count} devices, and PLAN is of one of them: {error}"
        )
        raise BadInput("--algorithm", request.algorithm, rule, "state the plan of one island") from None
    if inner.devices != island.cluster.count:
        rule = f"is for {inner.devices} devices, and an island has {island.cluster.count}"
        raise BadInput("plan", text, rule, "state the plan of one island, on all of its devices")
    return inner


def _closed_form(found: SimulatedApart) -> Predicted | None:
    """What the closed form says of an island's step, if it is a strategy's."""
    inner, setting = island_plan(found.plan), found.step.program.setting
    try:
        strategy = parse_strategy(inner.name)
    except TrainwrightError:
        return None
    job = Job(
        graph=setting.graph, cluster=setting.cluster, stack=setting.stack, efficiency=setting.efficiency,
        seq=setting.seq, global_batch=inner.batch * inner.microbatches,
    )  # fmt: skip
    return predict(job, strategy)
