"""The functions of `trainwright`: each builds a request from its keywords, and answers it.

`trainwright.plan(...)`, `trainwright.simulate(...)` and so on are these. Their signatures are those of the
requests, so that a keyword exists here exactly if the command line has it. See docs/library.md.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from trainwright.api.fields import FilePath, Request, Whole, check_keywords
from trainwright.api.plan_request import PlanRequest
from trainwright.api.requests import (
    AdviseRequest,
    CalibrateRequest,
    CatalogRequest,
    CompareRequest,
    ExportRequest,
    SimulateRequest,
    SweepRequest,
    ValidateRequest,
)
from trainwright.api.study_requests import (
    ClusterDesignStudyRequest,
    CommunicationStudyRequest,
    FlexiblePlansStudyRequest,
    ScalingStudyRequest,
    SubnetworksStudyRequest,
)
from trainwright.errors import BadInput

if TYPE_CHECKING:
    from trainwright.api.advise import ConfigurationAdvice
    from trainwright.api.calibrate import AnchoredRuns, RefinedEfficiencies
    from trainwright.api.catalog import CatalogEntries
    from trainwright.api.compare import ComparedSteps
    from trainwright.api.export import ExportedPlan
    from trainwright.api.plan import PlanResult
    from trainwright.api.simulation import Simulation
    from trainwright.api.study import StudyFindings
    from trainwright.api.sweep import Swept
    from trainwright.api.validate import ValidationErrors
    from trainwright.sweep.run import Progress
    from trainwright.sweep.types import Sweep

P = ParamSpec("P")
RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


def _asked_by(
    request: Callable[P, RequestT],
) -> Callable[[Callable[[RequestT], ResultT]], Callable[P, ResultT]]:
    """Make a function of a request one of the request's fields as keywords."""

    def decorate(answer: Callable[[RequestT], ResultT]) -> Callable[P, ResultT]:
        @wraps(answer)
        def ask(*values: P.args, **keywords: P.kwargs) -> ResultT:
            check_keywords(request, f"trainwright.{answer.__name__}", keywords)
            return answer(request(*values, **keywords))

        returned = inspect.signature(answer).return_annotation
        vars(ask).pop("__wrapped__")  # whose signature is that of a request
        vars(ask)["__signature__"] = inspect.signature(request).replace(return_annotation=returned)
        return ask

    return decorate


@_asked_by(PlanRequest)
def plan(request: PlanRequest) -> "PlanResult":
    """The best plans for a model on a cluster; `InfeasiblePlan` if nothing fits.

    `model` and `cluster` are names, paths, dictionaries or objects; a traced graph is a model too. A quantity
    is text as on the command line (`tokens="15T"`, `price="2 $/h"`) or a number in the field's unit.
    `fix={"pp": [1, 2]}` and `change={"memory": 0.9}` take mappings, `devices_range=(64, 1024)` a pair.

    The result is `StrategyPlans`, a sequence of plans, best first. With `max_days` or `max_dollars` they are
    those of the smallest cluster, and `sizing` has the counts around it; with `flexible`, `flexible` has
    non-uniform plans. With `algorithm` it is `LowCommunicationPlans`; of a recommender, `RecommenderPlans`.
    """
    from trainwright.api.plan import answer_plan

    return answer_plan(request)


@_asked_by(SimulateRequest)
def simulate(request: SimulateRequest) -> "Simulation":
    """Every task of a step of a plan; a plan that does not fit is simulated all the same.

    `plan` is a strategy (text or object), a plan file, a plan by name like `"co-shard tp=2"`, or what
    `trainwright.plan` answered, all of it or one of its plans: then batch and length are those planned for.
    """
    from trainwright.api.simulate import answer_simulate

    return answer_simulate(request)


@_asked_by(ExportRequest)
def export(request: ExportRequest) -> "ExportedPlan":
    """A plan for another tool: `text`, or for `to="chakra"` traces; `save(path)` writes them.

    What the tool cannot express raises, or with `lenient` is a comment. `plan` is as in `simulate`.
    """
    from trainwright.api.export import answer_export

    return answer_export(request)


@_asked_by(AdviseRequest)
def advise(request: AdviseRequest) -> "ConfigurationAdvice":
    """How good a configuration is, what each change would gain, and the best there is.

    `config` is a file of Megatron-LM's, torchtitan's, DeepSpeed's or others, or a strategy; variables of a
    script are `set={"TP": 4}`. `notes` of the result say what matters and is not considered.
    """
    from trainwright.api.advise import answer_advise

    return answer_advise(request)


@_asked_by(CompareRequest)
def compare(request: CompareRequest) -> "ComparedSteps":
    """A measured step compared with the predicted one: files or trees of traces."""
    from trainwright.api.compare import answer_compare

    return answer_compare(request)


@_asked_by(ValidateRequest)
def validate(request: ValidateRequest) -> "ValidationErrors":
    """Errors of predictions for a table of real runs; without one, for the catalog's published runs."""
    from trainwright.api.validate import answer_validate

    return answer_validate(request)


@_asked_by(CalibrateRequest)
def calibrate(request: CalibrateRequest) -> "RefinedEfficiencies | AnchoredRuns":
    """What traces of a profiler, or measured runs, correct; `save(path)` writes a file that `plan` takes."""
    from trainwright.api.calibrate import answer_calibrate

    return answer_calibrate(request)


@_asked_by(CatalogRequest)
def catalog(request: CatalogRequest) -> "CatalogEntries":
    """Devices, networks, models and stacks that are known: all names, the entries of a kind, or one entry."""
    from trainwright.api.catalog import answer_catalog

    return answer_catalog(request)


def _study(request: Request) -> "StudyFindings":
    from trainwright.api.study import answer_study

    return answer_study(request)


@_asked_by(ScalingStudyRequest)
def study_scaling(request: ScalingStudyRequest) -> "StudyFindings":
    """What more devices give: throughput, power, money and communication as a cluster grows."""
    return _study(request)


@_asked_by(CommunicationStudyRequest)
def study_comp_vs_comm(request: CommunicationStudyRequest) -> "StudyFindings":
    """The share of communication in models and machines to come, from one profiled layer."""
    return _study(request)


@_asked_by(ClusterDesignStudyRequest)
def study_cluster_design(request: ClusterDesignStudyRequest) -> "StudyFindings":
    """Parallelization and cluster chosen together: memory, network, cost, what to buy next."""
    return _study(request)


@_asked_by(FlexiblePlansStudyRequest)
def study_flexible_plans(request: FlexiblePlansStudyRequest) -> "StudyFindings":
    """Non-uniform plans against systems of 2022 and against all strategies of today."""
    return _study(request)


@_asked_by(SubnetworksStudyRequest)
def study_subnetworks(request: SubnetworksStudyRequest) -> "StudyFindings":
    """Independent subnetworks against DiLoCo, compressed gradients and small models; needs PyTorch."""
    return _study(request)


def sweep(
    what: "FilePath | Sweep",
    out: FilePath | None = None,
    *,
    workers: Whole | None = None,
    ray: str | None = None,
    progress: "Progress | None" = None,
) -> "Swept":
    """Run a sweep, or resume it where it was interrupted: a file of TOML, or a `Sweep`.

    `out` is the folder of its dataset; without it, the sweep's name.
    """
    from trainwright.api.sweep import answer_sweep

    return answer_sweep(SweepRequest(what, out, workers=workers, ray=ray), progress)


def trace(module: Any, example_inputs: Any) -> Any:
    """A PyTorch module as a graph with kernels, from what it does with the example inputs; needs PyTorch.

    See `trainwright.runtime.tracing.trace`, whose types a type checker sees here.
    """
    if find_spec("torch") is None:
        raise BadInput("trainwright.trace", "torch", "is not installed", "pip install 'trainwright[run]'")
    from trainwright.runtime.tracing.trace import trace as traced

    return traced(module, example_inputs)
