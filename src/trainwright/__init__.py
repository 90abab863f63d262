"""Trainwright: how to train this model on that cluster."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# What is loaded when it is first used, because it needs PyTorch, and the module that it is in.
_LATE = {"trace": "trainwright.runtime.tracing.trace"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
