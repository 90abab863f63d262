"""A module run without dropout, though it is in training mode: masks keep everything."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


class WithoutDropout(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, what dropout draws are its means, so that every element is kept as it is.

    `eval()` would also change modules that do something else in evaluations than in training.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _aten.native_dropout.default:
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if func is _aten.bernoulli_.float:  # of a mask, which is divided by this number next
            return args[0].fill_(args[1] if len(args) > 1 else 0.5)
        return func(*args, **(kwargs or {}))
