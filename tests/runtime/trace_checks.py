"""What a traced module must agree with: the module itself."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tests.runtime.trace_parts import split_all
from trainwright.runtime.tracing.traced import Traced
from trainwright.runtime.tracing.whole import evaluate


def flat(returned: Any) -> list[torch.Tensor]:
    """All tensors that a module returns, in order."""
    if isinstance(returned, torch.Tensor):
        return [returned]
    parts = returned.values() if isinstance(returned, Mapping) else returned
    return [tensor for part in parts for tensor in flat(part)]


def parameters_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters of a module under all of their names."""
    return dict(module.named_parameters(remove_duplicate=False))


def check_whole(module: nn.Module, traced: Traced, inputs: Mapping[str, torch.Tensor], within: float) -> None:
    """Results and gradients of the operators, one after another, are those of the module."""
    wanted = flat(module(**inputs))
    module.zero_grad()
    sum(each.sum() for each in wanted).backward()  # type: ignore[union-attr]
    gradients = {name: each.grad.clone() for name, each in module.named_parameters() if each.grad is not None}
    found = list(evaluate(traced, parameters_of(module), inputs).values())
    module.zero_grad()
    sum(each.sum() for each in found).backward()  # type: ignore[union-attr]
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(other, one, rtol=within, atol=within)
    for name, gradient in gradients.items():
        torch.testing.assert_close(module.get_parameter(name).grad, gradient, rtol=within, atol=within)


def check_parts(
    module: nn.Module,
    traced: Traced,
    inputs: Callable[[int], Mapping[str, torch.Tensor]],
    within: float = 1e-9,
) -> set[str]:
    """Operators in halves along every dim make up the whole; the kinds of operators that were met."""
    splits = list(split_all(traced, parameters_of(module), inputs(4)))
    assert [each for each in splits if each.difference > within] == []
    return {each.kind for each in splits}
