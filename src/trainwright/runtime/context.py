"""What a forward leaves for its backward: PyTorch's graph of one operator, and of tensors what that needs."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, saved_tensors_hooks

Tensors = Sequence[torch.Tensor]
Gradients = list[torch.Tensor | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where gradients enter the graph of an operator, and where they leave it; None: nowhere."""

    inputs: tuple[GradientEdge | None, ...]
    weights: tuple[GradientEdge | None, ...]
    results: tuple[GradientEdge | None, ...]

    def back(self, gradients: Gradients) -> tuple[Gradients, Gradients]:
        """The gradients of inputs and of weights, from those of results; the graph is gone then."""
        pairs = [
            (edge, gradient)
            for edge, gradient in zip(self.results, gradients, strict=True)
            if edge is not None and gradient is not None
        ]
        asked = [*self.inputs, *self.weights]
        found: Gradients = [None] * len(asked)
        wanted = [at for at, edge in enumerate(asked) if edge is not None]
        if pairs and wanted:
            edges, given = zip(*pairs, strict=True)
            sources = [edge for edge in asked if edge is not None]
            came = torch.autograd.grad(edges, sources, given, allow_unused=True)
            for at, gradient in zip(wanted, came, strict=True):
                found[at] = gradient
        return found[: len(self.inputs)], found[len(self.inputs) :]


class _Entrance(torch.autograd.Function):
    """A tensor as it is, from where on PyTorch notes what is done; a leaf's node would keep the tensor."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None]:
        return None, None


_GATE = torch.zeros((), requires_grad=True)


def trace(
    run: Callable[[Tensors, Tensors], Tensors],
    inputs: Tensors,
    weights: Tensors,
    lent: Tensors = (),
    fixed: Collection[int] = (),
    frozen: Collection[int] = (),
) -> tuple[tuple[torch.Tensor, ...], Context]:
    """What `run` makes of inputs and weights, and its context, which keeps nothing that is only `lent`.

    No gradient is computed of the inputs at the places in `fixed`, nor of the weights at those in `frozen`.
    """
    with torch.enable_grad(), _copying(lent):
        inputs = [each.detach() if at in fixed else _entered(each) for at, each in enumerate(inputs)]
        weights = [each.detach() if at in frozen else _entered(each) for at, each in enumerate(weights)]
        found = run(inputs, weights)
    edges = (tuple(map(_edge, some)) for some in (inputs, weights, found))
    context = Context(**dict(zip(("inputs", "weights", "results"), edges, strict=True)))
    return tuple(each.detach() for each in found), context


def _entered(tensor: torch.Tensor) -> torch.Tensor:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    found: torch.Tensor = _Entrance.apply(_GATE, tensor.detach())  # type: ignore[no-untyped-call]
    return found


def _edge(tensor: torch.Tensor) -> GradientEdge | None:
    return None if tensor.grad_fn is None else GradientEdge(tensor.grad_fn, tensor.output_nr)


@contextmanager
def _copying(lent: Tensors) -> Iterator[None]:
    """Has a graph keep copies of what lies in tensors that are given back after the forward."""
    if not lent:
        yield
        return
    places = {each.untyped_storage().data_ptr() for each in lent}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone() if tensor.untyped_storage().data_ptr() in places else tensor.detach()

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
