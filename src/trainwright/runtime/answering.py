"""A user's module with a loss: its own, else that of its logits."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trainwright.errors import BadInput

TOKENS, ANSWERS = "tokens", "answers"  # the inputs of a module that answers
_LABELS = ("labels", "targets")  # what modules call the right answers


def answering(module: nn.Module) -> nn.Module:
    """The same module, which now takes tokens and answers and returns one loss.

    The loss is its own if its forward takes labels and returns one, else the cross entropy of its logits.
    """
    own, label = module.forward, _label(module)
    config = getattr(module, "config", None)
    if getattr(config, "use_cache", False):  # of keys and values, which Hugging Face's models keep for later
        config.use_cache = False  # type: ignore[union-attr]

    def forward(tokens: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
        returned = _parts(own(tokens, **{label: answers} if label else {}))
        loss = _loss(returned) if label else None
        if loss is not None:
            return loss
        logits = _logits(returned, tokens)
        if logits is None:
            raise _odd(module, returned, label)
        return F.cross_entropy(logits.flatten(0, 1), answers.flatten())

    module.forward = forward
    return module


def _label(module: nn.Module) -> str | None:
    taken = inspect.signature(module.forward).parameters
    return next((each for each in _LABELS if each in taken), None)


def _parts(returned: Any) -> Mapping[str, Any]:
    """What a module returns, by name."""
    if isinstance(returned, Mapping):
        return {str(name): value for name, value in returned.items()}
    if isinstance(returned, tuple | list):
        return {str(place): value for place, value in enumerate(returned)}
    named = {name: getattr(returned, name, None) for name in ("loss", "logits")}
    found = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    return found or {"result": returned}


def _loss(returned: Mapping[str, Any]) -> torch.Tensor | None:
    return _first(returned, "loss", lambda each: each.dim() == 0)


def _logits(returned: Mapping[str, Any], tokens: torch.Tensor) -> torch.Tensor | None:
    return _first(returned, "logits", lambda each: each.dim() == 3 and each.shape[:2] == tokens.shape)


def _first(returned: Mapping[str, Any], name: str, fits: Any) -> torch.Tensor | None:
    """The part of that name if it fits, else the first one that does."""
    listed = [returned.get(name), *returned.values()]
    tensors = (each for each in listed if isinstance(each, torch.Tensor) and each.is_floating_point())
    return next((each for each in tensors if fits(each)), None)


def _odd(module: nn.Module, returned: Mapping[str, Any], label: str | None) -> BadInput:
    listed = ", ".join(
        f"{name} {list(each.shape) if isinstance(each, torch.Tensor) else type(each).__name__}"
        for name, each in returned.items()
    )
    wanted = "neither logits [batch, seq, vocab] nor a loss" if label else "not logits [batch, seq, vocab]"
    return BadInput(
        "module", type(module).__name__, f"returns {listed or 'nothing'}, {wanted}",
        "return logits for every token, or take labels and return a loss",
    )  # fmt: skip
