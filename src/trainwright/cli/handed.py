"""The plan that a user hands over, in any of the forms in which plans are named."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from trainwright.cli.named_plan import is_file, is_zoo, load_plan
from trainwright.cli.subject import cluster_json
from trainwright.cluster.load import load_cluster
from trainwright.cluster.sites import split_sites
from trainwright.cluster.types import Cluster, Device
from trainwright.errors import BadInput, TrainwrightError
from trainwright.export.divides import check_divides
from trainwright.export.handover import DEVICES_PER_NODE, Handover
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.load import load_model
from trainwright.plan.expand import expand
from trainwright.plan.plan import Plan
from trainwright.plan.strategy import PRECISIONS, Strategy, parse_strategy
from trainwright.plan.zoo import build_zoo, parse_zoo
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


def parse_handed(options: argparse.Namespace) -> Handed:
    """The plan that the options name, for the model and the cluster that they name."""
    text = " ".join(options.plan)
    found = _load_answer(text) if is_file(text) and text.endswith(".json") else None
    if found is not None:
        _adopt(options, found)
        place = place_of(options)
        handed = _of_strategy(options, parse_strategy(found["strategy"]["text"]), place)
        return replace(handed, notes=(*handed.notes, *_other_cluster(found, place)))
    place = place_of(options)
    if is_file(text):
        return _of_plan(options, _with_batch(options, load_plan(Path(text))), place)
    words = text.split()
    if words and is_zoo(words):
        return _of_plan(options, _zoo(text, options, place), place)
    strategy = parse_strategy(text)
    if place.cluster is None or set(PRECISIONS) & set(words):
        return _of_strategy(options, strategy, place)
    device = place.cluster.device
    strategy = replace(strategy, precision=device.usual_precision)
    return replace(_of_strategy(options, strategy, place), usual_of=device)


def place_of(options: argparse.Namespace) -> Place:
    """Model, cluster and length that options state."""
    architecture = load_model(options.model) if options.model else None
    cluster = load_cluster(options.cluster) if options.cluster else None
    usual = host_size(cluster) if cluster else DEVICES_PER_NODE
    seq = parse_whole(options.seq, "--seq", most=_MOST_SEQ) if options.seq else None
    return Place(
        model=options.model, architecture=architecture,
        cluster=cluster, seq=seq or (architecture.max_seq if architecture else None),
        per_node=parse_whole(options.per_node, "--per-node", most=1024) if options.per_node else usual,
    )  # fmt: skip


def _load_answer(text: str) -> Mapping[str, Any]:
    """The best plan of what `trainwright plan --json` wrote, with the names of model and cluster."""
    remedy = "name a file that trainwright plan --json wrote"
    try:
        tree = json.loads(Path(text).read_text(encoding="utf-8"))
        best = tree["plans"][0]
        known: dict[str, Any] = {"model": str(tree["model"]), "cluster": _cluster_text(tree["cluster"])}
        known |= {"global_batch": int(best["global_batch"]), "seq": int(best["seq"])}
        known |= {name: str(tree.get(name) or "") for name in _STATED}
        return known | {"strategy": {"text": str(best["strategy"]["text"])}}
    except OSError as error:
        raise BadInput("plan", text, f"cannot be read ({error.strerror})", remedy) from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise BadInput("plan", text, "is no answer of trainwright plan", remedy) from None


def adopt_answer(options: argparse.Namespace) -> None:
    """If PLAN is an answer of `trainwright plan --json`, put its best strategy there, and what it says of
    batch, length, software, optimizer and imbalance of experts where the user states nothing.
    """
    text = " ".join(options.plan)
    if not (text.endswith(".json") and is_file(text)) or options.algorithm or options.islands:
        return
    if _is_of_islands(text):
        return
    found = _load_answer(text)
    options.plan = [found["strategy"]["text"]]
    if not options.batch_tokens:
        options.batch = options.batch or str(found["global_batch"])
    options.seq = options.seq or str(found["seq"])
    for name in _STATED:
        setattr(options, name, getattr(options, name) or found[name] or None)


def _is_of_islands(text: str) -> bool:
    try:
        return "algorithms" in json.loads(Path(text).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _cluster_text(where: Mapping[str, Any]) -> str:
    """The cluster of an answer as `--cluster` takes it; several sites only have the name that users write."""
    name = str(where.get("name", ""))  # which answers of earlier versions do not have
    return name if split_sites(name) else f"{where['device']}:{where['count']}@{where['network']}"


def _other_cluster(found: Mapping[str, Any], place: Place) -> tuple[str, ...]:
    """A note, if the plan of an answer is exported for another cluster than it was planned for."""
    assert place.cluster is not None
    stated = _cluster_text(cluster_json(place.cluster))
    if stated == found["cluster"]:
        return ()
    return (f"Planned for {found['cluster']}, exported for {stated}: plan again for the best strategy.",)


def _adopt(options: argparse.Namespace, found: Mapping[str, Any]) -> None:
    """Fill in what the answer says and the user does not."""
    options.seq = options.seq or str(found["seq"])
    options.batch = options.batch or str(found["global_batch"])
    for name in ("optimizer", "grad_dtype"):
        setattr(options, name, getattr(options, name) or found[name] or None)
    for name in ("model", "cluster"):
        if getattr(options, name):
            continue
        try:
            (load_model if name == "model" else load_cluster)(found[name])
        except TrainwrightError:  # it was planned from a file, whose path the answer does not hold
            rule = f"was planned for {name} {found[name]}, which is not in the catalog"
            raise BadInput("plan", " ".join(options.plan), rule, f"state --{name}") from None
        setattr(options, name, found[name])


def _of_strategy(options: argparse.Namespace, strategy: Strategy, place: Place) -> Handed:
    _check_cluster(strategy.devices, strategy.precision, place)
    batch, how = _batch(options, strategy, place)
    handover = Handover(
        strategy=strategy, global_batch=batch, seq=place.seq, model=place.model,
        architecture=place.architecture, per_node=place.per_node, **_stated(options, place),
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


def _batch(options: argparse.Namespace, strategy: Strategy, place: Place) -> tuple[int, str]:
    """Sequences per step, and what to say if they were not stated."""
    if options.batch:
        return parse_whole(options.batch, "--batch", most=MOST_BATCH), ""
    unit = strategy.dp * strategy.micro_batch
    if place.architecture and place.seq:
        wanted = usual_batch_tokens(build_graph(place.architecture)) // place.seq
        return unit * max(round(wanted / unit), 1), "The global batch is a guess by model size (see --batch)."
    rounds = 4 * strategy.pp if strategy.pp > 1 else 1
    return unit * rounds, "The global batch is a guess: 1 microbatch, or 4 for each stage (see --batch)."


def _zoo(text: str, options: argparse.Namespace, place: Place) -> Plan:
    if place.architecture is None or place.cluster is None:
        raise BadInput("plan", text, "depends on model and cluster", "state --model and --cluster")
    name, parameters = parse_zoo(text)
    graph = build_graph(place.architecture)
    precision = place.cluster.device.usual_precision
    parameters = ({} if precision == "bf16" else {"precision": precision}) | parameters
    batch = parse_whole(options.batch, "--batch", most=MOST_BATCH) if options.batch else 0
    batch = batch or max(usual_batch_tokens(graph) // (place.seq or 1), place.cluster.count)
    return build_zoo(name, graph, place.cluster.count, batch, **parameters)


def _with_batch(options: argparse.Namespace, plan: Plan) -> Plan:
    """The plan of a file, which has a batch of its own; raises if another one is asked for."""
    own = plan.batch * plan.microbatches
    if options.batch and parse_whole(options.batch, "--batch", most=MOST_BATCH) != own:
        rule = f"the plan has batch x microbatches = {own}"
        raise BadInput("--batch", options.batch, rule, "leave it out, or change the file")
    return plan


class _StatedState(TypedDict):
    optimizer: str
    grad_dtype: str
    device_family: str


def _stated(options: argparse.Namespace, place: Place) -> _StatedState:
    """What is known of the state that is kept: its optimizer, its gradients, and the devices that keep it."""
    return _StatedState(
        optimizer=options.optimizer or "", grad_dtype=options.grad_dtype or "",
        device_family=place.cluster.device.family if place.cluster else "",
    )  # fmt: skip


def _of_plan(options: argparse.Namespace, plan: Plan, place: Place) -> Handed:
    """A plan that was written down: as its strategy if it is the plan of one, else as it is."""
    _check_cluster(plan.devices, plan.precision, place)
    strategy = _strategy_of(plan, place)
    if strategy is None:
        return Handed(title=plan.name, notes=(), plan=plan, per_node=place.per_node, seq=place.seq)
    handover = Handover(
        strategy=strategy, global_batch=plan.batch * plan.microbatches, seq=place.seq, model=place.model,
        architecture=place.architecture, per_node=place.per_node, **_stated(options, place),
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
