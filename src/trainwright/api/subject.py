"""What a request is about: a model on a cluster, with software, at a length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainwright.api.fields import pair_texts, source_text
from trainwright.api.sources import read_cluster, read_model
from trainwright.api.subject_fields import SubjectFields
from trainwright.cluster.types import Cluster
from trainwright.cost.change import RESOURCES, Place, parse_change
from trainwright.cost.chosen_optimizer import check_optimizer, render_optimizer, with_optimizer
from trainwright.cost.constants import TORCHREC, Efficiency, Stack
from trainwright.cost.expert_imbalance import check_imbalance, parse_imbalance, render_imbalance
from trainwright.cost.load import Constants, Interval, load_constants
from trainwright.cost.memory_risk import MemorySpread
from trainwright.cost.source import build_source
from trainwright.errors import BadInput
from trainwright.estimate.types import Job
from trainwright.model.architecture import Architecture
from trainwright.model.dlrm import is_recommender
from trainwright.model.graph import Graph, parameters
from trainwright.program.setting import Setting
from trainwright.stack.load import stack_name
from trainwright.units import parse_whole, render_bytes, render_si

_MOST_SEQ = 100_000_000
OPTIMIZER_FLAGS = ("--optimizer", "--grad-dtype")
_IMBALANCE_FLAG = "--expert-imbalance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model, a cluster, software, tokens per sequence; how far a prediction can be off, and what to say."""

    graph: Graph
    cluster: Cluster
    stack: Stack
    efficiency: Efficiency
    seq: int
    interval: Interval
    memory_spread: MemorySpread
    title: str
    basis: tuple[str, ...]  # what the constants rest on

    def job(self, batch: int) -> Job:
        """The work of a step of so many sequences."""
        return Job(**self._parts(), global_batch=batch)

    def setting(self, precision: str = "bf16") -> Setting:
        """What plans are lowered for."""
        return Setting(**self._parts(), precision=precision)

    def _parts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("graph", "cluster", "stack", "efficiency", "seq")}


def build_subject(request: SubjectFields, devices: int | None = None) -> Subject:
    """The subject that a request describes; on so many devices, if stated."""
    graph, architecture = read_model(request.model)
    cluster = read_cluster(request.cluster)
    cluster = replace(cluster, count=devices) if devices else cluster
    constants = load_constants()
    asked = constants.stack(stack_name(request.stack)) if request.stack else _own_stack(graph, constants)
    source = build_source(request.cost, source_text(request.cluster), cluster, constants, asked)
    place = Place(cluster=cluster, efficiency=source.efficiency)
    changes = [each for each in map(parse_change, pair_texts(request.change)) if each[1] != 1.0]
    for name, factor in changes:
        place = RESOURCES[name](place, factor)
    stack = _with_imbalance(request, _with_optimizer(request, source.stack), graph)
    default = "" if request.stack else f" (default for {cluster.device.family})"
    return Subject(
        graph=graph,
        cluster=place.cluster,
        stack=stack,
        efficiency=place.efficiency,
        seq=_sequence_length(request, graph, architecture),
        interval=source.interval,
        memory_spread=constants.memory_spread(stack),
        title=_title(graph, cluster, stack) + default,
        basis=(
            *filter(None, [architecture.left_out if architecture else ""]),
            *source.notes,
            *_unstated(cluster),
            *filter(None, [render_optimizer(stack), render_imbalance(stack)]),
            *_changed(changes),
        ),
    )


def _unstated(cluster: Cluster) -> tuple[str, ...]:
    """A note on a device whose usable memory nobody states."""
    own = cluster.device.memory[0]
    if own.usable_fraction is not None:
        return ()
    size = render_bytes(own.capacity_bytes)
    return (
        f"Usable memory of {cluster.device.name} is not stated: its nominal {size} are taken; "
        "add usable_memory to its first [[device.memory]].",
    )


def _changed(changes: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """A note on what the cluster has more or less of than its entry says."""
    if not changes:
        return ()
    return ("Changed: " + ", ".join(f"{factor:g} times the {name}" for name, factor in changes) + ".",)


def cluster_json(cluster: Cluster) -> Mapping[str, object]:
    """What an answer says of its cluster: its name as the user wrote it, and what is in it."""
    return {
        "name": cluster.name, "device": cluster.device.name, "count": cluster.count,
        "network": cluster.network.name,
    }  # fmt: skip


def _own_stack(graph: Graph, constants: Constants) -> Stack | None:
    """The software of recommenders, on every device."""
    return constants.stack(TORCHREC.name) if is_recommender(graph) else None


def _with_optimizer(request: SubjectFields, stack: Stack) -> Stack:
    """The stack with the optimizer and gradients that are stated, if it has them."""
    stated = (request.optimizer or "", request.grad_dtype or "")
    check_optimizer(stack.capability, *stated, OPTIMIZER_FLAGS)
    return with_optimizer(stack, *stated)


def _with_imbalance(request: SubjectFields, stack: Stack, graph: Graph) -> Stack:
    """The stack with the imbalance of experts that is stated, if the model can have it."""
    if request.expert_imbalance is None:
        return stack
    factor = parse_imbalance(str(request.expert_imbalance), _IMBALANCE_FLAG)
    check_imbalance(factor, graph, _IMBALANCE_FLAG)
    return replace(stack, stated_imbalance=factor)


def _sequence_length(request: SubjectFields, graph: Graph, architecture: Architecture | None) -> int:
    if request.seq is not None:
        return parse_whole(request.seq, "--seq", most=_MOST_SEQ)
    if architecture is None:
        raise BadInput("model", graph.name, "is a graph, which states no sequence length", "state seq")
    return architecture.max_seq


def _title(graph: Graph, cluster: Cluster, stack: Stack) -> str:
    size = render_si(parameters(graph), "").replace(" G", " B").strip()
    where = f"{cluster.count} {cluster.device.name} ({cluster.network.name})"
    return f"{graph.name} ({size} parameters) on {where}, {stack.name}"
