"""A module with fewer layers: the first ones, as many as it takes to have every kind."""

from collections.abc import Mapping

from torch import nn

from trainwright.runtime.tracing.blocks import find_layers


def shorten(module: nn.Module, least: int) -> nn.Module:
    """The same module with the layers after the first ones left out, in each list of layers.

    What is left has at least `least` layers if the module has, and a layer of every kind.
    """
    lists = _lists(module)
    share = -(-least // max(len(lists), 1))
    for path, count in lists.items():
        listed = module.get_submodule(path)
        assert isinstance(listed, nn.ModuleList | nn.Sequential)
        kept = max(share, _with_every_kind(listed))
        if kept < count:
            del listed[kept:]
    return module


def count_layers(module: nn.Module) -> int:
    """The layers of a module."""
    return len(find_layers(module))


def _lists(module: nn.Module) -> Mapping[str, int]:
    """The lists of layers by path, with the number of layers in each."""
    found: dict[str, int] = {}
    for path in find_layers(module):
        parent = path.rpartition(".")[0]
        found[parent] = found.get(parent, 0) + 1
    return found


def _with_every_kind(layers: nn.ModuleList | nn.Sequential) -> int:
    """How many of the first layers have among them one of every kind: of the same modules and shapes."""
    seen: set[str] = set()
    needed = 0
    for number, layer in enumerate(layers):
        shapes = {name: tuple(each.shape) for name, each in layer.named_parameters()}
        kind = f"{layer}/{shapes}"
        if kind not in seen:
            seen.add(kind)
            needed = number + 1
    return needed
