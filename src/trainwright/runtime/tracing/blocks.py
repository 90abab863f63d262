"""Which block of the model each node belongs to: the layers that repeat, and what stands around them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn
from torch.fx import Node

from trainwright.runtime.tracing.nodes import module_path


@dataclass(frozen=True, slots=True, order=True)
class Spot:
    """A block's place in the order of blocks; `path` is the layer's module, empty at the ends."""

    number: int
    name: str
    path: str = ""


def find_layers(module: nn.Module) -> tuple[str, ...]:
    """The paths of the layers of a module in order: children of the outermost lists of composed modules."""
    found: list[str] = []
    for path, below in module.named_modules():
        inside = any(path.startswith(f"{layer}.") for layer in found)
        children = list(below.children())
        if inside or not isinstance(below, nn.ModuleList | nn.Sequential) or not path:
            continue
        if children and all(list(child.children()) for child in children):
            found += [f"{path}.{name}" for name, _ in below.named_children()]
    return tuple(found)


def place_nodes(nodes: Sequence[Node], layers: Sequence[str]) -> dict[Node, Spot]:
    """The block of every node: a layer's by its module, else after all that it reads."""
    used = _in_order_of_use(nodes, layers)
    spots = {path: Spot(number + 1, "layer", path) for number, path in enumerate(used)}
    first = Spot(0, "embedding" if used else "head")
    last = Spot(len(used) + 1, "head")
    found: dict[Node, Spot] = {}
    for node in nodes:
        path = _layer_of(module_path(node), used)
        read = max((found[each] for each in node.all_input_nodes if each in found), default=first)
        own = spots[path] if path else read
        found[node] = max(own, read) if path else (last if used and read.number >= len(used) else own)
    return found


def _layer_of(path: str, layers: Iterable[str]) -> str:
    return next((layer for layer in layers if path == layer or path.startswith(f"{layer}.")), "")


def _in_order_of_use(nodes: Sequence[Node], layers: Sequence[str]) -> list[str]:
    paths = (_layer_of(module_path(node), layers) for node in nodes)
    return list(dict.fromkeys(path for path in paths if path))
