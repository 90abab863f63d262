"""Mixtures of experts: found by their parameters, accepted if they compute what the catalog's do."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Node

from trainwright.runtime.tracing.capture import Capture
from trainwright.runtime.tracing.nodes import arguments, call_with, module_path, op_name, shape
from trainwright.runtime.tracing.separate import STORED
from trainwright.runtime.tracing.traced import Part


def mixture(
    x: torch.Tensor,
    router: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    down: torch.Tensor,
    top_k: int,
) -> torch.Tensor:
    """Each token through its `top_k` likeliest experts, weighed by their softmax (Jiang et al. 2024).

    Weights have a matrix for each expert, from its width to the one before.
    """
    best, chosen = (x @ router.t()).topk(top_k, dim=-1)
    shares = torch.zeros_like(x @ router.t()).scatter(-1, chosen, best.softmax(-1))
    inner = F.silu(torch.einsum("...h,efh->...ef", x, gate)) * torch.einsum("...h,efh->...ef", x, up)
    return torch.einsum("...ef,ehf,...e->...h", inner, down, shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A module that may be a mixture: its nodes, and what goes in and out."""

    nodes: Sequence[Node]
    source: Node
    result: Node
    router: Node
    experts: tuple[Node, ...]  # matrices for each expert, in the order of the module
    top_k: int


def recognise_mixtures(captured: Capture) -> Capture:
    """The same computation with one node for each mixture of experts."""
    parameters = dict(captured.parameters)
    for path in _paths(captured):
        found = _found(captured, path)
        if found is not None and _agrees(found, captured.constants):
            parameters |= _replace(captured, found)
    captured.graph.eliminate_dead_code()
    alive = {node for node in captured.graph.nodes if node.users}
    return replace(captured, parameters={n: names for n, names in parameters.items() if n in alive})


def _paths(captured: Capture) -> list[str]:
    """Modules around those that own three-dimensional parameters: a router stands beside its experts."""
    owners = [
        names[0].rpartition(".")[0] for node, names in captured.parameters.items() if len(shape(node)) == 3
    ]
    around = [owner.rpartition(".")[0] for owner in owners]
    return list(dict.fromkeys(path for pair in zip(owners, around, strict=True) for path in pair if path))


def _found(captured: Capture, path: str) -> _Found | None:
    nodes = [node for node in captured.graph.nodes if _inside(node, path)]
    read = dict.fromkeys(each for node in nodes for each in node.all_input_nodes if each not in nodes)
    weights = [each for each in read if each in captured.parameters]
    sources = [each for each in read if each not in captured.parameters and each not in captured.constants]
    results = [node for node in nodes if any(user not in nodes for user in node.users)]
    routers = [each for each in weights if len(shape(each)) == 2]
    experts = sorted((each for each in weights if len(shape(each)) == 3), key=_order(captured))
    counts = {arguments(node)["k"] for node in nodes if op_name(node) == "topk"}
    alone = len(sources) == len(results) == len(routers) == len(counts) == 1
    flat = len(sources) != 1 or len(shape(sources[0])) != 3
    if not alone or flat or len(experts) not in (2, 3) or len(weights) != 1 + len(experts):
        return None
    return _Found(
        nodes=nodes, source=sources[0], result=results[0], router=routers[0], experts=tuple(experts),
        top_k=counts.pop(),
    )  # fmt: skip


def _inside(node: Node, path: str) -> bool:
    own = module_path(node)
    return node.op == "call_function" and (own == path or own.startswith(f"{path}."))


def _order(captured: Capture) -> Any:
    """Matrices up before those down, as their names say, else in the module's order."""
    listed = list(captured.parameters)
    return lambda node: ("down" in captured.parameters[node][0], listed.index(node))


def _agrees(found: _Found, constants: Mapping[Node, torch.Tensor]) -> bool:
    """Whether a module gives what the formula does, on random numbers."""
    random = torch.Generator().manual_seed(0)
    values: dict[Node, Any] = dict(constants)
    for node in (found.source, found.router, *found.experts):
        size, dtype = shape(node), node.meta["val"].dtype
        values[node] = torch.randn(size, generator=random, dtype=torch.float64).to(dtype) * size[-1] ** -0.5
    values[found.source] = values[found.source] * shape(found.source)[-1] ** 0.5
    gate, up, down = _matrices(found, values)
    wanted = mixture(values[found.source], values[found.router], gate, up, down, found.top_k)
    try:
        for node in found.nodes:
            values[node] = call_with(node, values.__getitem__)
    except (KeyError, RuntimeError):
        return False
    given = values[found.result]
    return given.shape == wanted.shape and torch.allclose(given, wanted, rtol=1e-3, atol=1e-4)


def _matrices(found: _Found, values: Mapping[Node, torch.Tensor]) -> list[torch.Tensor]:
    """Gate, up and down; the first two may lie in one tensor, one after the other."""
    first, *rest = (values[node] for node in found.experts)
    return [*first.chunk(2, dim=1), *rest] if len(rest) == 1 else [first, *rest]


def _replace(captured: Capture, found: _Found) -> dict[Node, tuple[str, ...]]:
    parts = dict(_parts(captured, found)) if len(found.experts) == 2 else {}
    matrices = [*parts, *found.experts[1:]] if parts else list(found.experts)
    graph = captured.graph
    with graph.inserting_before(found.result):
        made = graph.call_function(mixture, (found.source, found.router, *matrices, found.top_k))
    made.meta |= found.result.meta
    found.result.replace_all_uses_with(made)
    return parts


def _parts(captured: Capture, found: _Found) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Gate and up as weights of their own."""
    fused = found.experts[0]
    size = shape(fused)
    width = size[1] // 2
    for number in range(2):
        with captured.graph.inserting_before(fused):
            part = captured.graph.placeholder(f"{fused.name}_{number}")
        start = number * width
        part.meta["val"] = fused.meta["val"].narrow(1, start, width)
        part.meta[STORED] = (Part(view=size, axis=1, start=start, stop=start + width, number=number),)
        yield part, captured.parameters[fused]
