"""The answer to a request for plans: which kind of planning it asks for is decided here, for every caller."""

from trainwright.api.fields import refuse
from trainwright.api.limits import Limits, build_limits
from trainwright.api.low_communication import LowCommunicationPlans, plan_low_communication
from trainwright.api.non_uniform import check_non_uniform, find_non_uniform
from trainwright.api.plan_problem import build_problem
from trainwright.api.plan_request import BOUNDED_KNOBS, PlanRequest
from trainwright.api.ranked_plans import rank_plans
from trainwright.api.recommender_plans import RecommenderPlans, plan_recommender
from trainwright.api.sizing import ReportProgress, size_of
from trainwright.api.sources import read_model
from trainwright.api.strategy_plans import StrategyPlans
from trainwright.api.terms_fields import ReliabilityFields
from trainwright.errors import InfeasiblePlan
from trainwright.model.dlrm import is_recommender

PlanResult = StrategyPlans | LowCommunicationPlans | RecommenderPlans

# Fields on layers, tokens, sequences, or on a run's interruptions.
_NOT_OF_TABLES = (
    "batch_tokens", "batch_range", "batch_tolerance", "seq", "objective", "fix", "pareto",
    *(f"max_{knob}" for knob in BOUNDED_KNOBS),
    "flexible", "tokens", "target_loss", "scaling_law", "critical_batch", "max_days", "max_dollars",
    "devices_range", "all_variants", "oom_risk", "headroom", "runs", *ReliabilityFields.__dataclass_fields__,
)  # fmt: skip


def _silent(done: int, planned: int, name: str) -> None:
    pass


def answer_plan(request: PlanRequest, report_progress: ReportProgress = _silent) -> PlanResult:
    """What a request asks; `InfeasiblePlan` if nothing fits. A field that does not apply raises."""
    if is_recommender(read_model(request.model)[0]):
        rule = "is not for recommenders, whose tables no island could hold alone"
        refuse(request, ("algorithm", "islands"), rule)
        refuse(request, _NOT_OF_TABLES, "does not apply to a recommender")
        return plan_recommender(request)
    if request.algorithm is not None:
        _check_algorithm(request)
        return plan_low_communication(request)
    rule, remedy = "goes with --algorithm", 'state both, as in --algorithm "diloco"'
    refuse(request, ("islands",), rule, remedy)
    limits = build_limits(request)
    return _strategies(request) if limits is None else _smallest(request, limits, report_progress)


def _check_algorithm(request: PlanRequest) -> None:
    rule = "goes with exact training, and --algorithm compares it with others on one cluster"
    names = ("flexible", "pareto", "max_days", "max_dollars", "devices_range")
    refuse(request, names, rule, "leave out one of the two")
    refuse(request, ("batch_range",), "is for exact training, without --algorithm", "use --batch")


def _strategies(request: PlanRequest) -> StrategyPlans:
    problem = build_problem(request)
    if request.flexible:
        check_non_uniform(request, problem)
    try:
        ranked = rank_plans(problem)
    except InfeasiblePlan:
        flexible = find_non_uniform(problem) if request.flexible else None
        if not flexible or not flexible.plans:
            raise
        refuse(request, ("pareto",), "is of strategies, and none of them fits")
        return StrategyPlans(request=request, problem=problem, ranked=None, flexible=flexible)
    flexible = find_non_uniform(ranked.problem) if request.flexible else None
    return StrategyPlans(request=request, problem=ranked.problem, ranked=ranked, flexible=flexible)


def _smallest(request: PlanRequest, limits: Limits, report_progress: ReportProgress) -> StrategyPlans:
    """A cluster within the limits: the counts around it, and its plans."""
    sizing = size_of(request, limits, report_progress)
    ranked = rank_plans(build_problem(request, sizing.chosen.devices))
    return StrategyPlans(request=request, problem=ranked.problem, ranked=ranked, sizing=sizing)
