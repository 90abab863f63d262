"""The answer to a request for one plan in detail."""

from pathlib import Path

from trainwright.api.anchoring import anchor_subject
from trainwright.api.batch import batch_tree, build_batch_target, check_own_batch, named_at_batch
from trainwright.api.fields import refuse
from trainwright.api.handed import adopt_planned
from trainwright.api.named_plan import NamedPlan, check_rate, is_file, load_plan, parse_named
from trainwright.api.requests import SimulateRequest
from trainwright.api.simulate_low_communication import is_of_islands, simulate_low_communication
from trainwright.api.simulation import Simulation
from trainwright.api.subject import Subject, build_subject
from trainwright.api.terms import build_terms
from trainwright.model.dlrm import is_recommender
from trainwright.plan.plan import Plan
from trainwright.plan.zoo.table_parallel import sharding_of
from trainwright.program.check import check
from trainwright.report.account import Predicted, account_of, predict, predict_tables
from trainwright.simulate import whole
from trainwright.simulate.whole import Simulated

# Fields on sequences, or on replicas that each hold all weights.
_NOT_OF_TABLES = ("batch_tokens", "seq", "algorithm", "islands", "runs")


def answer_simulate(request: SimulateRequest) -> Simulation:
    """The simulated step; what does not fit is simulated all the same."""
    request = adopt_planned(request)
    subject = build_subject(request)
    if is_recommender(subject.graph):
        refuse(request, _NOT_OF_TABLES, "does not apply to a recommender")
    if is_of_islands(request):
        return simulate_low_communication(request, subject)
    named, note = _build_plan(request, subject)
    subject, anchor = anchor_subject(request, subject, (named.plan.precision,))
    priced = build_terms(request, subject)
    simulated = _simulate(subject, named)
    account = account_of(simulated, priced.terms, closed_form=_closed_form(subject, named), free=request.free)
    if is_recommender(subject.graph):
        note += "; what is said of tokens is of samples"
    batch = named.plan.batch * named.plan.microbatches
    notes = (subject.title, note, *priced.notes((batch * subject.seq,)), *subject.basis)
    return Simulation(
        request=request, subject=subject, plan=named.plan, notes=notes, simulated=simulated, account=account,
        batch=batch_tree((batch,), build_batch_target(request, subject)), anchor=anchor,
    )  # fmt: skip


def _build_plan(request: SimulateRequest, subject: Subject) -> tuple[NamedPlan, str]:
    """The plan, and what to say of its batch."""
    text, plan = str(request.plan), request.plan
    if isinstance(plan, Plan) or is_file(text):
        named = NamedPlan(plan=plan if isinstance(plan, Plan) else load_plan(Path(text)))
        own = named.plan.batch * named.plan.microbatches
        note = check_own_batch(request, subject, text, own, "batch x microbatches")
    else:
        named, note = named_at_batch(request, subject, text, lambda batch: parse_named(text, subject, batch))
    check_rate(named.plan, subject)
    return named, note


def _simulate(subject: Subject, named: NamedPlan) -> Simulated:
    simulated = whole.simulate_plan(subject.setting(), named.plan)
    check(simulated.program)
    return simulated


def _closed_form(subject: Subject, named: NamedPlan) -> Predicted | None:
    job = subject.job(named.plan.batch * named.plan.microbatches)
    if is_recommender(subject.graph):
        sharding = sharding_of(named.plan) if named.plan.name.startswith("table-parallel") else None
        return predict_tables(job, sharding) if sharding else None
    return predict(job, named.strategy) if named.strategy else None
