"""A user's module itself on one process: the loss and gradients that every plan must have."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from trainwright.runtime.tracing.traced import Inputs, Traced
from trainwright.runtime.whole import Initial
from trainwright.runtime.without_dropout import WithoutDropout
from trainwright.runtime.worker import Microbatch


@dataclass(frozen=True, slots=True, kw_only=True)
class OneProcess:
    """A traced module as it is: `build` makes it, with a loss and in the precision of the run.

    Its weights are near its first ones, but none is at a special value such as zero, which would hide wrong
    gradients; `initial` has the same ones for the weights of the graph. `inputs` are its own, from a
    microbatch of tokens. `layers` says how many of how many it has, if some were left out because the whole
    module is too large to be compared.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[Microbatch], Inputs]
    initial: Callable[[], Initial]
    traced: Traced
    layers: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceGradients:
    """The loss of a microbatch and the gradient of every weight of the graph, by its key.

    `rounding` is what the precision alone changes in each: the largest difference from float32.
    """

    loss: float
    gradients: Mapping[str, torch.Tensor]
    rounding: Mapping[str, float]


def run_reference(alone: OneProcess, inputs: Inputs) -> ReferenceGradients:
    """The module's own loss and gradients, without dropout."""
    module = alone.build()
    loss, gradients = _gradients(alone.traced, module, inputs)
    precise = gradients
    if any(each.dtype != torch.float32 for each in module.parameters()):
        for parameter in module.parameters():
            parameter.data = parameter.data.float()
        precise = _gradients(alone.traced, module, inputs)[1]
    return ReferenceGradients(
        loss=loss, gradients=gradients,
        rounding={key: float((each - precise[key]).abs().max()) for key, each in gradients.items()},
    )  # fmt: skip


def disturb(module: nn.Module) -> nn.Module:
    """The same module with a little added to every parameter, the same in every process."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=random, dtype=torch.float32) * _NOISE
            parameter.add_(noise.to(parameter.dtype))
    return module


_NOISE = 0.02  # the usual deviation of first weights


def _gradients(traced: Traced, module: nn.Module, inputs: Inputs) -> tuple[float, dict[str, torch.Tensor]]:
    parameters = dict(module.named_parameters(remove_duplicate=False))
    module.zero_grad()
    with torch.random.fork_rng(devices=[]), WithoutDropout():  # type: ignore[no-untyped-call]
        loss = module(**inputs)
    loss.backward()
    found = {}
    for key, weight in traced.weights.items():
        parameter = parameters[weight.names[0]]
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        found[key] = weight.load(gradient).detach().float().contiguous()
    return float(loss.detach()), found
