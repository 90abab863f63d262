"""Models and clusters as users hand them over: names, paths, dictionaries or objects."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

from trainwright.api.fields import ClusterSource, ModelSource
from trainwright.cluster.load import build_cluster, load_cluster
from trainwright.cluster.types import Cluster
from trainwright.errors import BadInput
from trainwright.model.architecture import Architecture
from trainwright.model.build import build_graph
from trainwright.model.graph import Graph
from trainwright.model.huggingface import parse_config
from trainwright.model.load import check_sizes, load_model, parse_entry

_OWN_FILE = ("profile", "efficiency")  # of a cluster, which only a file may have
_HUGGING_FACE = ("model_type", "architectures")  # keys of a config.json


def read_model(model: ModelSource) -> tuple[Graph, Architecture | None]:
    """The graph of a model, and its architecture unless it is known as a graph only."""
    graph = getattr(model, "graph", model)  # of a traced module
    if isinstance(graph, Graph):
        if "heads" not in graph.sizes:
            raise BadInput("model", graph.name, "is a graph without attention", "trace a transformer")
        return graph, None
    architecture = read_architecture(model)
    return build_graph(architecture), architecture


def read_architecture(model: ModelSource) -> Architecture:
    """The architecture of a model; a graph has none."""
    if isinstance(model, Architecture):
        return model
    if isinstance(model, str | PathLike):
        return load_model(str(model))
    if isinstance(model, Mapping):
        return _parse_architecture(model)
    what = f"a {type(model).__name__}"
    raise BadInput("model", what, "is not a name, a path, a dictionary or an architecture", "name a model")


def _parse_architecture(table: Mapping[str, Any]) -> Architecture:
    """The architecture of a dictionary: a Hugging Face configuration, or fields of an architecture."""
    if any(key in table for key in _HUGGING_FACE):
        return check_sizes(parse_config(dict(table), "config", source="config.json"), "config.json")
    entry = parse_entry(table, str(table.get("name", "model")), source="model")
    return check_sizes(entry.architecture, "model")


def read_cluster(cluster: ClusterSource) -> Cluster:
    """The cluster that is named, described or given."""
    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, str | PathLike):
        return load_cluster(str(cluster))
    if not isinstance(cluster, Mapping):
        what = f"a {type(cluster).__name__}"
        raise BadInput("cluster", what, "is not a name, a path, a dictionary or a cluster", "name a cluster")
    for key in _OWN_FILE:
        if key in cluster:
            raise BadInput("cluster key", key, "is for cluster files", "save the cluster to a TOML file")
    found = build_cluster(cluster, "cluster", str(cluster.get("name", "cluster")))
    _ = found.levels, found.tiers  # which must exist for all of its devices
    return found
