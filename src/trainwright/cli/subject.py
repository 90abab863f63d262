"""What a command is about, read from the options: a model on a cluster, with software, at a length."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.cli.expert_imbalance import imbalanced_stack
from trainwright.cli.optimizer import stated_stack
from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.change import RESOURCES, Place, parse_change
from trainwright.cost.chosen_optimizer import render_optimizer
from trainwright.cost.constants import TORCHREC, Efficiency, Stack
from trainwright.cost.expert_imbalance import render_imbalance
from trainwright.cost.load import Constants, Interval, load_constants
from trainwright.cost.memory_risk import MemorySpread
from trainwright.cost.source import build_source
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.stack.load import stack_name
from trainwright.units import parse_whole, render_bytes, render_si

_MOST_SEQ = 100_000_000


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


def parse_subject(
    options: argparse.Namespace, devices: int | None = None, architecture: Architecture | None = None
) -> Subject:
    """The subject that `model`, `cluster`, `--stack` and `--seq` describe; on so many devices, if stated.

    A model that is known already goes before the one that is named.
    """
    architecture = architecture or load_model(options.model)
    graph = build_graph(architecture)
    cluster = load_cluster(options.cluster)
    cluster = replace(cluster, count=devices) if devices else cluster
    constants = load_constants()
    asked = (
        constants.stack(stack_name(options.stack)) if options.stack else _own_stack(architecture, constants)
    )
    source = build_source(options.cost, options.cluster, cluster, constants, asked)
    place = Place(cluster=cluster, efficiency=source.efficiency)
    changes = [parse_change(text) for text in getattr(options, "change", ())]
    for name, factor in changes:
        place = RESOURCES[name](place, factor)
    stack = imbalanced_stack(options, stated_stack(options, source.stack), graph)
    default = "" if options.stack else f" (default for {cluster.device.family})"
    return Subject(
        graph=graph,
        cluster=place.cluster,
        stack=stack,
        efficiency=place.efficiency,
        seq=parse_whole(options.seq, "--seq", most=_MOST_SEQ) if options.seq else architecture.max_seq,
        interval=source.interval,
        memory_spread=constants.memory_spread(stack),
        title=_title(architecture, graph, cluster, stack) + default,
        basis=(
            *filter(None, [architecture.left_out]),
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


def _own_stack(architecture: Architecture, constants: Constants) -> Stack | None:
    """The software of recommenders, on every device."""
    return constants.stack(TORCHREC.name) if architecture.kind == "dlrm" else None


def _title(architecture: Architecture, graph: Graph, cluster: Cluster, stack: Stack) -> str:
    size = render_si(parameters(graph), "").replace(" G", " B").strip()
    where = f"{cluster.count} {cluster.device.name} ({cluster.network.name})"
    return f"{architecture.name} ({size} parameters) on {where}, {stack.name}"
