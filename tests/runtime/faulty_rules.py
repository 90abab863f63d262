"""Factories that break a rule of the runtime in their own process, to see whether a run notices."""

from typing import Any

import torch
from torch import nn

from tests.runtime.own_modules import gpt
from trainwright.runtime import compute, run_check


def right() -> nn.Module:
    """Nothing is broken."""
    return gpt()


def doubled() -> nn.Module:
    """Gradients of weights of products are twice what they should be."""
    honest = compute.Computer._matmul_weights

    def faulty(self: Any, operation: Any, frame: Any) -> None:
        honest(self, operation, frame)
        honest(self, operation, frame)

    compute._MATMUL["W"] = faulty
    compute.Computer._matmul_weights = faulty  # type: ignore[method-assign]
    return gpt()


def forgotten() -> nn.Module:
    """An operator without a derivative: the gradients of norms are lost."""
    honest = compute.Computer._made

    def faulty(self: Any, operation: Any, *rest: Any, **more: Any) -> tuple[torch.Tensor, ...]:
        found = honest(self, operation, *rest, **more)
        return tuple(each.detach() + 0 * each for each in found) if "norm" in operation.op.name else found

    compute.Computer._made = faulty  # type: ignore[method-assign]
    return gpt()


def large() -> nn.Module:
    """A module that is thought too large to be compared whole."""
    run_check.is_too_large = lambda parameters, tokens: parameters > 30_000
    return gpt()
