"""A module as the planner and the runtime take it: a graph, with a kernel for each operator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from trainwright.model.graph import Graph
from trainwright.runtime.work import Kernel, is_bias

Inputs = Mapping[str, torch.Tensor]  # what the module is given, by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of a tensor from `start` to `stop` of an axis of its view of shape `view`."""

    view: tuple[int, ...]
    axis: int
    start: int
    stop: int
    number: int  # among the parts that are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Where a weight of the graph is kept in the module: a parameter, or a part of a part of it.

    `names` are all names under which the module knows the parameter, which has `rank` axes; `shape` is that
    of the weight, before its axes are put in `order`. One that is not `trained` is frozen, or no loss depends
    on it.
    """

    names: tuple[str, ...]
    rank: int
    shape: tuple[int, ...]
    parts: tuple[Part, ...] = ()
    order: tuple[int, ...] = ()
    trained: bool = True

    def load(self, parameter: torch.Tensor) -> torch.Tensor:
        """The weight, from the parameter."""
        for part in self.parts:
            parameter = parameter.reshape(part.view).narrow(part.axis, part.start, part.stop - part.start)
        parameter = parameter.reshape(self.shape)
        return parameter.permute(self.order) if self.order else parameter

    def save(self, weight: torch.Tensor, parameter: torch.Tensor) -> None:
        """Write the weight into the parameter, which lies in one piece."""
        places = torch.arange(parameter.numel(), device=parameter.device).view(parameter.shape)
        parameter.view(-1)[self.load(places).reshape(-1)] = weight.reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An input of the module as a value of the graph: its name, and its shape there (-1 for samples)."""

    name: str
    shape: tuple[int, ...]

    def load(self, tensor: torch.Tensor) -> torch.Tensor:
        """The value, from the input."""
        return tensor.reshape(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Something that the module returns: a value of the graph, and how it is arranged there.

    A loss has `terms` instead: values whose mean counts a share each, over the answers whose targets count
    where there are any; `constant` is added to them.
    """

    value: str  # BLOCK/TENSOR
    arrange: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor
    terms: tuple[tuple[str, float], ...] = ()
    constant: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A module as a graph with kernels.

    `kernels` are by instance (`BLOCK/OP`), `weights` by the key under which a weight is stored, which is
    `BLOCK/WEIGHT`, or `WEIGHT` if it is tied. `inputs` are the module's inputs by the value (`input/NAME`)
    that each of them is. `targets` compute the right answers of a loss from all inputs, laid out as its
    result and with -100 for those that do not count; the kernel of a loss is given them after its inputs.
    `notes` say what is kept whole, and why. The kernels hold for any number of samples if `any_batch`, else
    for microbatches of `batch` samples, as in the example; and for sequences as long as its: `seq`.
    """

    graph: Graph
    kernels: Mapping[str, Kernel]
    weights: Mapping[str, Weight]
    inputs: Mapping[str, Given]
    targets: Mapping[str, Callable[[Inputs], torch.Tensor]]
    outputs: Mapping[str, Output]
    notes: tuple[str, ...]
    batch: int
    any_batch: bool
    seq: int

    @property
    def decayed(self) -> frozenset[str]:
        """The weights that decay: those of parameters with two axes or more, biases apart.

        Axes of size 1 are no dims of the graph, and one axis may be several dims.
        """
        found = (key for key, each in self.weights.items() if each.rank > 1 and not is_bias(each.names[0]))
        return frozenset(found)
