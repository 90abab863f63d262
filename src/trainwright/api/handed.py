"""The plan that a request hands over, in any of the forms in which plans are named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from trainwright.api.fields import ClusterSource, ModelSource, Quantity, source_text
from trainwright.api.named_plan import is_file, is_zoo, load_plan
from trainwright.api.requests import ExportRequest, SimulateRequest
from trainwright.api.sources import read_architecture, read_cluster
from trainwright.api.strategy_plans import StrategyPlans
from trainwright.api.subject import cluster_json
from trainwright.cluster.sites import split_sites
from trainwright.cluster.types import Cluster, Device
from trainwright.errors import BadInput, TrainwrightError
from trainwright.export.divides import check_divides
from trainwright.export.handover import DEVICES_PER_NODE, Handover
from trainwright.export.targets import TARGETS
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import PRECISIONS, Strategy, parse_strategy
from trainwright.plan.zoo import build_zoo, parse_zoo
from trainwright.report.summary import Summary
from trainwright.search.usual import MOST_BATCH, check_precision, usual_batch_tokens
from trainwright.units import parse_whole

_MOST_SEQ = 100_000_000
_MOST_PER_HOST = 16
_STATED = ("stack", "optimizer", "grad_dtype", "expert_imbalance")  # of an answer: None where not stated
_RACK_HOST = 4  # devices of a host of NVL72 racks and of TPU pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A plan of knobs (`handover`) or one that no knobs describe (`plan`); and what to say of it."""

    title: str
    notes: tuple[str, ...]
    handover: Handover | None = None
    plan: Plan | None = None
    per_node: int = DEVICES_PER_NODE
    seq: int | None = None  # tokens per sequence, if they are known
    usual_of: Device | None = None  # the device whose usual precision a strategy without one has


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What is known about where and on what a plan runs."""

    model: str | None
    architecture: Architecture | None
    cluster: Cluster | None
    seq: int | None
    per_node: int


def host_size(cluster: Cluster) -> int:
    """Devices that share a host: those of the innermost level, unless it is a rack or a pod of hosts of 4."""
    return cluster.node_size if cluster.node_size <= _MOST_PER_HOST else _RACK_HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStrategy:
    """The best plan of an earlier answer, and what it was planned for; None where that is not known."""

    strategy: str
    global_batch: int
    seq: int
    model: ModelSource | None = None
    cluster: ClusterSource | None = None
    stack: str | None = None
    optimizer: str | None = None
    grad_dtype: str | None = None
    expert_imbalance: Quantity | None = None
    cluster_text: str = ""  # the cluster as `--cluster` takes it


def read_planned(plan: object) -> PlannedStrategy | None:
    """The plan of an answer: of `trainwright.plan`, or of what `trainwright plan --json` wrote."""
    if isinstance(plan, Summary):
        return PlannedStrategy(strategy=str(plan.strategy), global_batch=plan.global_batch, seq=plan.seq)
    if isinstance(plan, StrategyPlans):
        stack = plan.problem.question.job.stack
        known = read_planned(plan.best)
        assert known is not None
        return replace(
            known, model=plan.request.model, cluster=plan.request.cluster, stack=stack.name,
            optimizer=plan.optimizer, grad_dtype=plan.grad_dtype,
            expert_imbalance=stack.stated_imbalance or None,
            cluster_text=_cluster_text(cluster_json(plan.problem.question.job.cluster)),
        )  # fmt: skip
    text = str(plan)
    return _load_answer(text) if text.endswith(".json") and is_file(text) else None


def adopt_planned(request: SimulateRequest) -> SimulateRequest:
    """A request for the plan of an answer, with what that says of batch, length, software, optimizer and
    imbalance of experts where the request states nothing; any other request as it is.
    """
    if request.algorithm or request.islands or _is_of_islands(request.plan):
        return request
    found = read_planned(request.plan)
    if found is None:
        return request
    batch = found.global_batch if request.batch is None and request.batch_tokens is None else request.batch
    imbalance = found.expert_imbalance if request.expert_imbalance is None else request.expert_imbalance
    return replace(
        request, plan=found.strategy, batch=batch, seq=found.seq if request.seq is None else request.seq,
        stack=request.stack or found.stack, optimizer=request.optimizer or found.optimizer,
        grad_dtype=request.grad_dtype or found.grad_dtype, expert_imbalance=imbalance,
    )  # fmt: skip


def _is_of_islands(plan: object) -> bool:
    if not str(plan).endswith(".json"):
        return False
    try:
        return "algorithms" in json.loads(Path(str(plan)).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def adopt_exported(request: ExportRequest) -> tuple[ExportRequest, PlannedStrategy | None]:
    """A request for the plan of an answer, with what that says where the request states nothing."""
    found = read_planned(request.plan)
    if found is None:
        return request, None
    model, cluster = request.model or found.model, request.cluster or found.cluster
    name = "model"
    try:
        if model is not None:
            read_architecture(model)
        name = "cluster"
        if cluster is not None:
            read_cluster(cluster)
    except TrainwrightError:  # it was planned from a file, whose path the answer does not hold
        if getattr(request, name) is not None:
            raise
        rule = f"was planned for {name} {getattr(found, name)}, which is not in the catalog"
        raise BadInput("plan", str(request.plan), rule, f"state --{name}") from None
    is_seq_used = model or (request.to in TARGETS and TARGETS[request.to].writes_seq)
    seq = found.seq if request.seq is None and is_seq_used else request.seq
    adopted = replace(
        request, plan=found.strategy, model=model, cluster=cluster, seq=seq,
        batch=found.global_batch if request.batch is None else request.batch,
        optimizer=request.optimizer or found.optimizer, grad_dtype=request.grad_dtype or found.grad_dtype,
    )  # fmt: skip
    return adopted, found


def build_handed(request: ExportRequest, planned: PlannedStrategy | None) -> Handed:
    """The plan that a request names, for its model and cluster; `planned` is the answer that it is of."""
    place = _build_place(request)
    if isinstance(request.plan, Plan):
        return _of_plan(request, _with_batch(request, request.plan), place)
    text = str(request.plan)
    if planned is not None:
        handed = _of_strategy(request, parse_strategy(text), place)
        return replace(handed, notes=(*handed.notes, *_other_cluster(planned, place)))
    if is_file(text):
        return _of_plan(request, _with_batch(request, load_plan(Path(text))), place)
    words = text.split()
    if words and is_zoo(words):
        return _of_plan(request, _zoo(text, request, place), place)
    strategy = parse_strategy(text)
    if place.cluster is None or set(PRECISIONS) & set(words):
        return _of_strategy(request, strategy, place)
    device = place.cluster.device
    strategy = replace(strategy, precision=device.usual_precision)
    return replace(_of_strategy(request, strategy, place), usual_of=device)


def _build_place(request: ExportRequest) -> Place:
    """Model, cluster and length that a request states."""
    architecture = None if request.model is None else read_architecture(request.model)
    cluster = None if request.cluster is None else read_cluster(request.cluster)
    usual = host_size(cluster) if cluster else DEVICES_PER_NODE
    seq = None if request.seq is None else parse_whole(request.seq, "--seq", most=_MOST_SEQ)
    stated = request.per_node
    return Place(
        model=(source_text(request.model or "") or architecture.name) if architecture else None,
        architecture=architecture,
        cluster=cluster, seq=seq or (architecture.max_seq if architecture else None),
        per_node=usual if stated is None else parse_whole(stated, "--per-node", most=1024),
    )  # fmt: skip


def _load_answer(text: str) -> PlannedStrategy:
    """The best plan of what `trainwright plan --json` wrote, with the names of model and cluster."""
    remedy = "name a file that trainwright plan --json wrote"
    try:
        tree = json.loads(Path(text).read_text(encoding="utf-8"))
        best = tree["plans"][0]
        return PlannedStrategy(
            strategy=str(best["strategy"]["text"]), model=str(tree["model"]),
            cluster=_cluster_text(tree["cluster"]), cluster_text=_cluster_text(tree["cluster"]),
            global_batch=int(best["global_batch"]), seq=int(best["seq"]),
            **{name: str(tree.get(name) or "") or None for name in _STATED},
        )  # fmt: skip
    except OSError as error:
        raise BadInput("plan", text, f"cannot be read ({error.strerror})", remedy) from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BadInput("plan", text, "is no answer of trainwright plan", remedy) from None


def _cluster_text(where: Mapping[str, Any]) -> str:
    """The cluster of an answer as `--cluster` takes it; several sites only have the name that users write."""
    name = str(where.get("name", ""))  # which answers of earlier versions do not have
    return name if split_sites(name) else f"{where['device']}:{where['count']}@{where['network']}"


def _other_cluster(planned: PlannedStrategy, place: Place) -> tuple[str, ...]:
    """A note, if the plan of an answer is exported for another cluster than it was planned for."""
    stated = _cluster_text(cluster_json(place.cluster)) if place.cluster else ""
    if not stated or not planned.cluster_text or stated == planned.cluster_text:
        return ()
    return (f"Planned for {planned.cluster_text}, exported for {stated}: plan again for the best strategy.",)


def _of_strategy(request: ExportRequest, strategy: Strategy, place: Place) -> Handed:
    _check_cluster(strategy.devices, strategy.precision, place)
    batch, how = _batch(request, strategy, place)
    handover = Handover(
        strategy=strategy, global_batch=batch, seq=place.seq, model=place.model,
        architecture=place.architecture, per_node=place.per_node, **_stated(request, place),
    )  # fmt: skip
    if place.architecture:  # these tell what the model does not allow
        check_divides(strategy, place.architecture, place.seq)
        expand(strategy, build_graph(place.architecture), batch)
    return Handed(
        title=f"{strategy}", notes=(how,) if how else (), handover=handover, per_node=place.per_node
    )


def _check_cluster(devices: int, precision: str, place: Place) -> None:
    """Raise for a cluster that has too few devices for a plan, or no rate for its precision."""
    if place.cluster is None:
        return
    if devices > place.cluster.count:
        rule = f"has {place.cluster.count} devices, and the plan is for {devices}"
        raise BadInput("--cluster", place.cluster.name, rule, "use a larger cluster, or lower a degree")
    check_precision(precision, place.cluster.device, f"--cluster {place.cluster.name}: precision")


def _batch(request: ExportRequest, strategy: Strategy, place: Place) -> tuple[int, str]:
    """Sequences per step, and what to say if they were not stated."""
    if request.batch is not None:
        return parse_whole(request.batch, "--batch", most=MOST_BATCH), ""
    unit = strategy.dp * strategy.micro_batch
    if place.architecture and place.seq:
        wanted = usual_batch_tokens(build_graph(place.architecture)) // place.seq
        return unit * max(round(wanted / unit), 1), "The global batch is a guess by model size (see --batch)."
    rounds = 4 * strategy.pp if strategy.pp > 1 else 1
    return unit * rounds, "The global batch is a guess: 1 microbatch, or 4 for each stage (see --batch)."


def _zoo(text: str, request: ExportRequest, place: Place) -> Plan:
    if place.architecture is None or place.cluster is None:
        raise BadInput("plan", text, "depends on model and cluster", "state --model and --cluster")
    name, parameters = parse_zoo(text)
    graph = build_graph(place.architecture)
    precision = place.cluster.device.usual_precision
    parameters = ({} if precision == "bf16" else {"precision": precision}) | parameters
    stated = request.batch
    batch = 0 if stated is None else parse_whole(stated, "--batch", most=MOST_BATCH)
    batch = batch or max(usual_batch_tokens(graph) // (place.seq or 1), place.cluster.count)
    return build_zoo(name, graph, place.cluster.count, batch, **parameters)


def _with_batch(request: ExportRequest, plan: Plan) -> Plan:
    """The plan of a file, which has a batch of its own; raises if another one is asked for."""
    own = plan.batch * plan.microbatches
    if request.batch is not None and parse_whole(request.batch, "--batch", most=MOST_BATCH) != own:
        rule = f"the plan has batch x microbatches = {own}"
        raise BadInput("--batch", request.batch, rule, "leave it out, or change the file")
    return plan


class _StatedState(TypedDict):
    optimizer: str
    grad_dtype: str
    device_family: str


def _stated(request: ExportRequest, place: Place) -> _StatedState:
    """What is known of the state that is kept: its optimizer, its gradients, and the devices that keep it."""
    return _StatedState(
        optimizer=request.optimizer or "", grad_dtype=request.grad_dtype or "",
        device_family=place.cluster.device.family if place.cluster else "",
    )  # fmt: skip


def _of_plan(request: ExportRequest, plan: Plan, place: Place) -> Handed:
    """A plan that was written down: as its strategy if it is the plan of one, else as it is."""
    _check_cluster(plan.devices, plan.precision, place)
    strategy = _strategy_of(plan, place)
    if strategy is None:
        return Handed(title=plan.name, notes=(), plan=plan, per_node=place.per_node, seq=place.seq)
    handover = Handover(
        strategy=strategy, global_batch=plan.batch * plan.microbatches, seq=place.seq, model=place.model,
        architecture=place.architecture, per_node=place.per_node, **_stated(request, place),
    )  # fmt: skip
    return Handed(title=plan.name, notes=(), handover=handover, plan=plan, per_node=place.per_node)


def _strategy_of(plan: Plan, place: Place) -> Strategy | None:
    """The strategy that a plan is named after, if it is what that expands to."""
    try:
        strategy = parse_strategy(plan.name)
    except TrainwrightError:
        return None
    if place.architecture is None:
        raise BadInput("plan", plan.name, "can be told from others only with its model", "state --model")
    graph, batch = build_graph(place.architecture), plan.batch * plan.microbatches
    same = any(expand(strategy, graph, batch, balanced=balanced) == plan for balanced in (False, True))
    return strategy if same else None
