"""What a command is about, read from the options: a model on a cluster, with software, at a length."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainwright.cluster.load import load_cluster
from trainwright.cluster.types import Cluster
from trainwright.cost.change import RESOURCES, Place, parse_change
from trainwright.cost.constants import TORCHREC, Efficiency, Stack
from trainwright.cost.load import Constants, Interval, load_constants, stack_name
from trainwright.cost.source import build_source
from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.dlrm import is_recommender
from trainwright.model.graph import Graph, parameters
from trainwright.model.load import load_model
from trainwright.search.usual import MOST_BATCH, usual_batch
from trainwright.units import parse_quantity, parse_whole, render_si

SAMPLES_PER_DEVICE = 512  # of a recommender
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
    stack, default = source.stack, "" if options.stack else f" (default for {cluster.device.family})"
    return Subject(
        graph=graph,
        cluster=place.cluster,
        stack=stack,
        efficiency=place.efficiency,
        seq=parse_whole(options.seq, "--seq", most=_MOST_SEQ) if options.seq else architecture.max_seq,
        interval=source.interval,
        title=_title(architecture, graph, cluster, stack) + default,
        basis=(*filter(None, [architecture.left_out]), *source.notes, *_changed(changes)),
    )


def _changed(changes: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """A note on what the cluster has more or less of than its entry says."""
    if not changes:
        return ()
    return ("Changed: " + ", ".join(f"{factor:g} times the {name}" for name, factor in changes) + ".",)


def parse_batch(options: argparse.Namespace, subject: Subject) -> tuple[int, str]:
    """Sequences per step, as `--batch` or `--batch-tokens` asks or by model size; and a note on them."""
    seq = subject.seq
    if is_recommender(subject.graph) and not (options.batch or options.batch_tokens):
        batch, how = (
            SAMPLES_PER_DEVICE * subject.cluster.count,
            f"{SAMPLES_PER_DEVICE} for each device, see --batch",
        )
    elif options.batch:
        batch, how = parse_whole(options.batch, "--batch", most=MOST_BATCH), "as asked"
    elif options.batch_tokens:
        batch, how = _batch_of_tokens(options.batch_tokens, seq), f"{options.batch_tokens} tokens"
    else:
        batch, how = usual_batch(subject.graph, subject.cluster, seq), "by model size, see --batch"
    return batch, batch_note(batch, seq, how)


def batch_note(batch: int, seq: int, how: str) -> str:
    """The batch in words."""
    if seq == 1:
        return f"Global batch: {batch} samples ({how})"
    return f"Global batch: {batch} sequences of {seq} tokens, {render_si(batch * seq, 'tokens')} ({how})"


def cluster_json(cluster: Cluster) -> Mapping[str, object]:
    """What an answer says of its cluster: its name as the user wrote it, and what is in it."""
    return {
        "name": cluster.name, "device": cluster.device.name, "count": cluster.count,
        "network": cluster.network.name,
    }  # fmt: skip


def _own_stack(architecture: Architecture, constants: Constants) -> Stack | None:
    """The software of recommenders, on every device."""
    return constants.stack(TORCHREC.name) if architecture.kind == "dlrm" else None


def _batch_of_tokens(text: str, seq: int) -> int:
    batch = round(parse_quantity(text, "tokens", "--batch-tokens") / seq)
    if batch < 1:
        raise BadInput("--batch-tokens", text, f"is less than a sequence of {seq}", "ask for more")
    if batch > MOST_BATCH:
        raise BadInput(
            "--batch-tokens", text, f"is more than {MOST_BATCH:,} sequences of {seq}", "ask for less"
        )
    return batch


def _title(architecture: Architecture, graph: Graph, cluster: Cluster, stack: Stack) -> str:
    size = render_si(parameters(graph), "").replace(" G", " B").strip()
    where = f"{cluster.count} {cluster.device.name} ({cluster.network.name})"
    return f"{architecture.name} ({size} parameters) on {where}, {stack.name}"
